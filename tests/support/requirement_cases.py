"""Lines of requirement files and their meaning on an image, for `extend` and for `pip-image`."""

#: An image of TensorFlow 2.2.3 on Python 3.6.
PACKAGES = {
    "cloudpickle": "2.2.1",
    "numpy": "1.18.5",
    "protobuf": "3.19.6",
    "six": "1.17.0",
    "tensorboard": "2.2.2",
    "tensorflow": "2.2.3+imgbuild",
    "tensorflow-cpu": "2.2.3",
}
CONSTRAINTS = """\
# TensorFlow and what was compiled against it stay.
numpy==1.18.5
protobuf==3.19.6
tensorboard==2.2.2
tensorflow==2.2.3
tensorflow-cpu==2.2.3
# These may change within the bounds of the packages that require them.
six>=1.12.0
# These releases work with this TensorFlow.
keras>=2.3,<2.4
tensorflow-addons==0.11.*
tensorflow-model-optimization<0  # needs TensorFlow>=2.4
# These have TensorFlow's files.
tensorflow-gpu<0
intel-tensorflow<0
tf-nightly<0
"""
#: Lines that pip gets as they are.
UNCHANGED = (
    "pandas",
    "pandas==1.1.5",
    "numpy",
    "NumPy>=1.16,<1.19",
    "numpy==1.18.5",
    "numpy~=1.18.2",
    "tensorflow==2.2.3",
    "tensorflow==2.2.*",
    "tensorflow>=2",
    "six==1.12.0",
    "six>1.14,<1.16",
    "cloudpickle==1.3.0",
    "keras",
    "keras==2.3.1",
    "Keras>=2.2",
    "tensorflow-addons==0.11.2",
    "numpy==1.21.0; python_version >= '3.7'",
    "tensorflow==2.4.0 ; sys_platform == 'darwin'",
    "scikit-learn[alldeps]>=0.20",
)
#: Lines that the image answers itself, without any other version than they ask for in earnest.
FULFILLED = (
    "tensorflow==2.2.0",
    "tensorflow==2.2.0rc4",
    "tensorflow~=2.2.1,!=2.2.3",
    "tensorflow_gpu==2.2.0",
    "tensorflow-gpu",
    "tensorflow-macos>=2.0",
    "tensorflow-intel==2.2.1",
    "tensorflow-cpu==2.2.1",
)
#: Lines that ask for another version than the image keeps.
DIFFERING = (
    "numpy==1.16.6",
    "numpy>=1.19",
    "Numpy==1.19",
    "protobuf==3.14.0",
    "tensorboard==2.2.1",
    "six==1.11.0",
    "six<1.12",
)
#: Lines that need another TensorFlow, or that would bring one.
REFUSED = (
    "tensorflow==2.1.0",
    "tensorflow==1.15",
    "tensorflow>=2.3",
    "tensorflow<2",
    "tensorflow-gpu==2.4.1",
    "tensorflow_gpu~=2.3.0",
    "intel-tensorflow==2.2.0",
    "tf-nightly",
    "tensorflow-model-optimization",
)
#: Lines that are read as another one, which pip gets; empty: none is left.
REPAIRED = {
    "cv2": "opencv-python-headless",
    "cv2==4.4.0.46": "opencv-python-headless==4.4.0.46",
    "sklearn": "scikit-learn",
    "sklearn==0.0": "scikit-learn",
    "PIL>=8": "Pillow>=8",
    "yaml": "PyYAML",
    "pandas=1.1.5": "pandas==1.1.5",
    "pandas=1.1.5=py36_0": "pandas==1.1.5",
    "pandas = 1.1.*": "pandas==1.1.*",
    "pandas @ file:///tmp/build/80754af9/pandas_1602083600793/work": "pandas",
    "tqdm @ file:///croot/tqdm_166/dist/tqdm-4.32.1-py2.py3-none-any.whl": "tqdm==4.32.1",
    "six @ file:///C:/ci/six_1605187303188/work": "six",
    "mkl-fft @ file:///tmp/build/80754af9/mkl_fft_1600112466793/work": "",
    "pkg-resources==0.0.0": "",
    "pkg_resources==0.0.0": "",
    "argparse": "",
    "futures==3.1.1": "",
    "tensorflow-metal": "",
    "keras==2.4.3": "keras",
    "tensorflow-addons>=0.12": "tensorflow-addons",
}
