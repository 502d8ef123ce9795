"""Tables about packages: their modules, their system libraries, and releases that work together."""

from datetime import date
from pathlib import Path

from packaging.utils import canonicalize_name

from imgbuild.locks.requirement_rules import MODULES

#: Distributions by module, where the names differ by more than case, ``-`` and ``_``. Those of
#: `MODULES` are the rules of `imgbuild extend`. Source: the top_level.txt of each distribution.
DISTRIBUTIONS = {
    **MODULES,
    "Box2D": "box2d-py",
    "IPython": "ipython",
    "MeCab": "mecab-python3",
    "attr": "attrs",
    "bson": "pymongo",
    "classification_models": "image-classifiers",
    "cairo": "pycairo",
    "community": "python-louvain",
    "constraint": "python-constraint",
    "cpuinfo": "py-cpuinfo",
    "dicom": "pydicom",
    "ffmpeg": "ffmpeg-python",
    "fitz": "PyMuPDF",
    "flask_cors": "Flask-Cors",
    "gi": "PyGObject",
    "github": "PyGithub",
    "google.cloud.bigquery": "google-cloud-bigquery",
    "google.cloud.storage": "google-cloud-storage",
    "googleapiclient": "google-api-python-client",
    "hydra": "hydra-core",
    "igraph": "python-igraph",
    "jwt": "PyJWT",
    "libfuturize": "future",
    "magic": "python-magic",
    "mujoco_py": "mujoco-py",
    "neptune": "neptune-client",
    "nrrd": "pynrrd",
    "osgeo": "GDAL",
    "past": "future",
    "patoolib": "patool",
    "pkg_resources": "setuptools",
    "progressbar": "progressbar2",
    "psycopg2": "psycopg2-binary",
    "pybullet_data": "pybullet",
    "pybullet_envs": "pybullet",
    "pymongo": "pymongo",
    "pymysql": "PyMySQL",
    "pyximport": "Cython",
    "rdkit": "rdkit-pypi",
    "retro": "gym-retro",
    "skfuzzy": "scikit-fuzzy",
    "skmultilearn": "scikit-multilearn",
    "skopt": "scikit-optimize",
    "sksurv": "scikit-survival",
    "slugify": "python-slugify",
    "snappy": "python-snappy",
    "speech_recognition": "SpeechRecognition",
    "surprise": "scikit-surprise",
    "talib": "TA-Lib",
    "telegram": "python-telegram-bot",
    "umap": "umap-learn",
    "websocket": "websocket-client",
}
_KNOWN = Path(__file__).with_name("known_packages.txt").read_text(encoding="utf-8")
#: Distributions that the index is asked for if a program imports them, by canonical name. Anybody
#: can register another name, so a name that is neither here nor in the repository is not installed.
KNOWN_PACKAGES = frozenset(
    {
        *(line for line in _KNOWN.splitlines() if not line.startswith("#")),
        *(str(canonicalize_name(name)) for name in DISTRIBUTIONS.values()),
    }
)
#: Modules that a repository usually has itself. If its own is missing, a package of that name from
#: the index would be another one.
OWN_NAMES = frozenset(
    """
    agent agents algorithm algorithms api app args arguments attention augmentation base bert
    buffer build callbacks checkpoint cfg classifier cnn common compat conf config configs
    configuration constants controller core corpus custom data data_helper data_helpers data_loader
    data_process data_reader data_utils dataloader datasets dataset decoder demo detector dist
    discriminator embedding embeddings encoder engine env environment environments envs eval
    evaluate evaluation evaluator example examples experiment experiments export extra features
    flags functions game gan generator generators global_settings graph graphs helper helpers
    hparams hyperparams image image_utils img inference infer infolog input inputs input_data
    layer layers lib libs load loader log logger logging_utils loss losses main mask memory metric
    metrics misc mnist modeling model models model_utils module modules net nets network networks
    nn ops optim optimization optimizer optimizers options parameters params parser plot policy
    policies predict preprocess preprocessing preprocessor process processing project reader
    replay_buffer resnet results rnn run runner runners sample sampler scripts server setting
    settings solver source src task tasks test tests text tokenization tokenizer tool tools train
    trainer trainers trainers_lib training transform transformer transforms unet util utility
    utilities utils vae version vgg vgg16 vgg19 visualization visualize visualizer vocab
    vocabulary wrappers yolo
    """.split()  # noqa: SIM905 - a list of one name a line has 200 lines
)
_GARDEN = "it is a folder of TensorFlow's model garden (github.com/tensorflow/models)"
#: Modules of packages that no package index has, or not as a package of this name.
NOWHERE = {
    "blocksparse": "it is a git repository, with operations that are compiled for CUDA",
    "caffe": "it is another framework, which is not on the package index",
    "deeplab": _GARDEN,
    "deepmind_lab": "it is compiled from a git repository (github.com/google-deepmind/lab)",
    "keras_contrib": "it is a git repository (github.com/keras-team/keras-contrib)",
    "multiagent": "it is a git repository (github.com/openai/multiagent-particle-envs)",
    "nets": _GARDEN,
    "object_detection": _GARDEN,
    "official": _GARDEN,
    "research": _GARDEN,
    "rllab": "it is a git repository (github.com/rll/rllab)",
    "slim": _GARDEN,
    "tflib": "it is a folder that repositories copy from each other",
    "universe": "it is a git repository (github.com/openai/universe)",
}
#: Modules of Python 2, and Pillow's as Python 2's PIL had them.
#: Source: documentation of Python 2.7, "Python Module Index".
PYTHON2_MODULES = frozenset(
    """
    BaseHTTPServer Bastion CGIHTTPServer ConfigParser Cookie DocXMLRPCServer HTMLParser Image
    ImageDraw ImageFilter ImageFont ImageOps MimeWriter Queue ScrolledText SimpleHTTPServer
    SimpleXMLRPCServer SocketServer StringIO Tix Tkinter UserDict UserList UserString __builtin__
    anydbm bsddb cPickle cStringIO commands compiler cookielib copy_reg dbhash dircache dl dumbdbm
    dummy_thread exceptions fpformat future_builtins gdbm hotshot htmlentitydefs htmllib httplib
    ihooks imputil itertools_ext markupbase md5 mhlib mimetools mimify multifile mutex new popen2
    posixfile repr rexec rfc822 robotparser sets sgmllib sha sre statvfs thread tkFileDialog
    tkMessageBox tkSimpleDialog ttk urllib2 urlparse user whichdb xmlrpclib
    """.split()  # noqa: SIM905 - as above
)
#: Packages that bring modules of newer Pythons to older ones, by canonical name, beside `LEFT_OUT`
#: and those with the name of a module of Python.
BACKPORTS = frozenset(
    """
    backports backports-abc backports-functools-lru-cache backports-lzma
    backports-shutil-get-terminal-size backports-shutil-which backports-ssl-match-hostname
    backports-tempfile backports-weakref funcsigs ordereddict pathlib2 scandir singledispatch
    subprocess32 trollius unittest2
    """.split()  # noqa: SIM905 - as above
)
#: Parts of newer Pythons, whose backports an older Python needs. The first Python that has each.
NEEDED_BACKPORTS = {
    "contextvars": "3.7",
    "dataclasses": "3.7",
    "graphlib": "3.9",
    "zoneinfo": "3.9",
}
#: Packages that check, test or publish code, or install packages: the program does not need them.
TOOLS = frozenset(
    """
    astroid autoflake autopep8 bandit black bump2version bumpversion codecov coverage coveralls
    distribute docformatter easy-install flake8 hacking isort mccabe mypy mypy-extensions nose nose2
    pep8 pip pip-tools pipdeptree pipenv pipreqs pkginfo pluggy poetry pre-commit pycodestyle
    pydocstyle pyflakes pylint pytest pytest-cov pytest-mock pytest-pep8 pytest-runner pytest-xdist
    pytype readme-renderer rope setuptools setuptools-scm sphinx sphinx-rtd-theme tox twine
    typed-ast virtualenv wheel yapf
    """.split()  # noqa: SIM905 - as above
)
#: Packages that others import if they are installed, for some of their functions.
USED_WITHOUT_IMPORT = frozenset(
    """
    atari-py box2d-py ffmpeg-python graphviz h5py html5lib imageio-ffmpeg lxml mujoco-py openpyxl
    pillow pydot pydotplus pyglet pyyaml sentencepiece soundfile tables xlrd
    """.split()  # noqa: SIM905 - as above
)
#: Packages that open and change notebooks.
NOTEBOOK_TOOLS = frozenset(
    """
    ipykernel ipython ipywidgets jupyter jupyter-client jupyter-console jupyter-core
    jupyter-contrib-nbextensions jupyter-nbextensions-configurator jupyterlab jupyterlab-pygments
    jupyterlab-server nbconvert nbdime nbformat nbsphinx notebook qtconsole widgetsnbextension
    """.split()  # noqa: SIM905 - as above
)
#: Packages that only Windows or macOS uses.
OTHER_SYSTEMS = frozenset(
    """
    appnope comtypes pyobjc pypiwin32 pyreadline pywin32 pywin32-ctypes pywinpty win-inet-pton
    win-unicode-console wincertstore windows-curses
    """.split()  # noqa: SIM905 - as above
)
#: Parts of an installation of TensorFlow, which belong to its version.
TENSORFLOW_PARTS = frozenset(
    """
    tb-nightly tensorboard tensorboard-data-server tensorboard-plugin-wit tensorflow-estimator
    tensorflow-estimator-2-0-preview tensorflow-io-gcs-filesystem tensorflow-tensorboard
    tf-estimator-nightly tf-nightly tf-nightly-2-0-preview tf-nightly-cpu tf-nightly-gpu
    tf-nightly-gpu-2-0-preview
    """.split()  # noqa: SIM905 - as above
)
#: Packages that conda's NumPy brings, which the index lacks in these versions.
CONDA_PARTS = frozenset(
    ["mkl", "mkl-fft", "mkl-include", "mkl-random", "mkl-service", "tbb", "tbb4py"]
)
#: Packages whose pins follow NumPy's: they were compiled against it, or need one that was.
NUMPY_FRIENDS = frozenset(
    """
    h5py llvmlite matplotlib numba numexpr pandas pyarrow pywavelets resampy scikit-image
    scikit-learn scipy statsmodels tables
    """.split()  # noqa: SIM905 - as above
)
#: Packages that others import without requiring them in their older releases.
#: Source: METADATA of scikit-learn 0.19.2 and seaborn 0.8.1.
COMPANIONS = {
    "scikit-learn": ("scipy",),
    "seaborn": ("matplotlib", "pandas", "scipy"),
}
_HEADLESS_FLOORS = (
    ("2", "4.10", date(2024, 6, 18)),
    # The first release, which is newer than many programs.
    ("1", "3.4.3.18", date(2018, 9, 10)),
)
#: The oldest releases that work with an image's NumPy: from which NumPy on, the release, and the
#: day the index got it. The highest NumPy comes first.
FLOORS = {
    # Tested by import in Python 3.6 with NumPy 1.18.5: 1.0.1 imports numpy.testing.decorators.
    "scipy": (("2", "1.13", date(2024, 4, 3)), ("1.18", "1.1", date(2018, 5, 6))),
    "matplotlib": (("2", "3.8.4", date(2024, 4, 5)), ("1.18", "2.2", date(2018, 3, 7))),
    # uv cannot read the metadata of older releases, which require pytz >=2011k.
    "pandas": (("2", "2.2.2", date(2024, 4, 11)), ("1", "0.25", date(2019, 7, 19))),
    "scikit-learn": (("2", "1.4.2", date(2024, 4, 10)), ("1.18", "0.19.2", date(2018, 7, 16))),
    # Tested by import in Python 3.6 with NumPy 1.18.5: 0.14.0 imports _validate_lengths.
    "scikit-image": (("2", "0.23.2", date(2024, 4, 21)), ("1.16", "0.14.2", date(2019, 1, 19))),
    # Source of the NumPy 2 entries: https://github.com/numpy/numpy/issues/26191
    "numba": (("2", "0.60", date(2024, 6, 14)),),
    "pyarrow": (("2", "16", date(2024, 4, 22)),),
    "opencv-python": (("2", "4.10", date(2024, 6, 18)),),
    "opencv-python-headless": _HEADLESS_FLOORS,
    "opencv-contrib-python-headless": _HEADLESS_FLOORS,
    # Older releases have no wheels, and need GEOS's headers.
    "shapely": (("1", "1.6", date(2017, 8, 22)),),
}
#: The day from which the index has wheels of the usual compiled packages for a Python. Code for
#: TensorFlow may be older, because people ran it in an older Python. Source: upload times of the
#: first wheels of SciPy, pandas, scikit-learn, scikit-image, Matplotlib, Pillow, OpenCV and numba.
FIRST_WHEELS = {"3.8": date(2020, 1, 15), "3.11": date(2023, 5, 15)}
#: Releases of packages that name no TensorFlow in their requirements, by TensorFlow's major
#: version. The companions of the matrix come first.
CEILINGS = {
    # Source: README of Sonnet 2, "Sonnet 2 has been designed and built to work with TensorFlow 2".
    "dm-sonnet": {"1": "<2", "2": ">=2"},
}
#: The distributions of OpenCV without windows, by those with windows. The image has no display.
HEADLESS = {
    "opencv-python": "opencv-python-headless",
    "opencv-contrib-python": "opencv-contrib-python-headless",
}
_OPENCV_WINDOWS = ("libgl1", "libglib2.0-0", "libsm6", "libxext6", "libxrender1")
#: ffmpeg, and libraries that a plugin of libcaca loads, but its package does not require.
_FFMPEG = ("ffmpeg", "libglu1-mesa", "libglut3.12")
#: The system libraries and programs that packages load, by canonical name, as Debian 12 and Ubuntu
#: 22.04 call them. Source: the error of an import without them, or the package's documentation.
SYSTEM_PACKAGES = {
    "graphviz": ("graphviz",),
    "moviepy": _FFMPEG,
    "opencv-contrib-python": _OPENCV_WINDOWS,
    "opencv-contrib-python-headless": ("libglib2.0-0",),
    "opencv-python": _OPENCV_WINDOWS,
    "opencv-python-headless": ("libglib2.0-0",),
    "pyaudio": ("libportaudio2",),
    "pydot": ("graphviz",),
    "pydotplus": ("graphviz",),
    "pydub": _FFMPEG,
    "pyrouge": ("libxml-parser-perl",),
    "pytesseract": ("tesseract-ocr",),
    "sk-video": _FFMPEG,
    "sounddevice": ("libportaudio2",),
    "soundfile": ("libsndfile1",),
}
#: The libraries with which gym and pygame draw. Only ``render()`` loads them.
RENDERING = ("libgl1", "libglu1-mesa", "xvfb")
RENDERERS = frozenset({"gym", "pygame", "pyglet"})
#: Compilers and headers that a package without wheels needs while it is built.
BUILD_PACKAGES = {
    "pyaudio": ("gcc", "libc6-dev", "portaudio19-dev"),
    "editdistance": ("g++",),
    "regex": ("gcc", "libc6-dev"),
}
#: Packages that a program can nearly always do without: a demo's microphone.
OPTIONAL = frozenset({"pyaudio"})
