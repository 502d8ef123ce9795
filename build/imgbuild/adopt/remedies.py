"""Find a remedy for a failure whose cause is known."""

import re
import sys
from collections.abc import Collection
from typing import NamedTuple

from packaging.utils import canonicalize_name

from imgbuild.adopt.failures import Start
from imgbuild.adopt.package_tables import DISTRIBUTIONS, KNOWN_PACKAGES
from imgbuild.locks.requirement_rules import (
    PASSES,
    TENSORFLOW_NAMES,
    ImageFacts,
    judge_line,
    parse_line,
)


class Remedy(NamedTuple):
    """Changes that may fix a failure, and why. Without any, ``reason`` says why none does.

    ``pip`` and ``apt`` are packages to add, ``build_apt`` those that compilation needs, and
    ``wheels_only`` packages that cannot be compiled.
    """

    pip: tuple[str, ...]
    apt: tuple[str, ...]
    reason: str
    build_apt: tuple[str, ...] = ()
    wheels_only: tuple[str, ...] = ()


#: Characters of an error that are searched.
_TEXTS = 4000


class _Cure(NamedTuple):
    """Requirements for a text of an error, and the change that caused it."""

    pattern: re.Pattern[str]
    pip: tuple[str, ...]
    reason: str
    source: re.Pattern[str]

    def fits(self, start: Start) -> bool:
        """Return whether it fits the error, and the line of code or the package that raised it."""
        text = f"{start.line}\n{start.cause}"[:_TEXTS]
        place = f"{start.source}\n{start.package}"[:_TEXTS]
        return bool(self.pattern.search(text) and self.source.search(place))


def _cure(pattern: str, pip: str, reason: str, source: str = "") -> _Cure:
    return _Cure(re.compile(pattern), tuple(pip.split()), reason, re.compile(source, re.MULTILINE))


def _attribute(module: str, names: str) -> str:
    """Return a pattern for names that a module does not have, by attribute, import or submodule.

    Python 3.6 does not name the module from which a name cannot be imported.
    """
    dotted = re.escape(module)
    return (
        rf"module '{dotted}' has no attribute '(?:{names})'|"
        rf"cannot import name '(?:{names})' from (?:partially initialized module )?'{dotted}'|"
        rf"No module named '{dotted}\.(?:{names})"
    )


_ABSTRACT = (
    "Iterable|Iterator|Mapping|MutableMapping|Sequence|MutableSequence|Callable|MutableSet|Set|"
    "Sized|Hashable|Container"
)
_TENSORFLOW_1 = (
    "placeholder|Session|InteractiveSession|layers|get_variable|app|ConfigProto|GraphDef|"
    "global_variables_initializer|log|logging|flags|to_float|variable_scope|set_random_seed|"
    "truncated_normal|random_normal|random_uniform|get_default_graph|reset_default_graph"
)
#: The first that fits counts. Sources: the release notes of each package, by the version that is
#: named in the reason, unless a comment names another.
_CURES = (
    # Release notes of SciPy 1.3.0, "Backwards incompatible changes", and the wheels of 1.2.3 and
    # 1.3.0. The functions for images need Pillow.
    _cure(
        _attribute("scipy.misc", "im(?:read|save|resize|rotate|show|filter)|toimage|fromimage")
        + r"|cannot import name '(?:imresize|imrotate|toimage|bytescale)'"
        + r"|module 'scipy\.misc' has no attribute 'bytescale'"
        + "|"
        + _attribute("scipy.ndimage", "imread"),
        "scipy<1.3 Pillow",
        "SciPy 1.3 has no functions for images in scipy.misc",
    ),
    _cure(
        _attribute("scipy.misc", "comb|factorial2?|factorialk|logsumexp|pade|info|source|who")
        + r"|cannot import name '(?:logsumexp|factorialk)'",
        "scipy<1.3",
        "SciPy 1.3 has comb, factorial and logsumexp in scipy.special alone",
    ),
    _cure(
        _attribute("scipy.interpolate", "spline|spleval|splmake|spltopp"),
        "scipy<1.3",
        "SciPy 1.3 has no scipy.interpolate.spline",
    ),
    # Release notes of SciPy 1.12.0 and of 1.10.0.
    _cure(
        _attribute("scipy.misc", "face|ascent|electrocardiogram|central_diff_weights|derivative"),
        "scipy<1.10",
        "SciPy 1.10 deprecates scipy.misc, and 1.12 has none of its functions",
    ),
    _cure(
        _attribute("scipy.signal", "hann|hamming|blackman|gaussian|bartlett|kaiser"),
        "scipy<1.13",
        "SciPy 1.13 has the windows in scipy.signal.windows alone",
    ),
    # SciPy of 2017 imports `numpy.testing.nosetester`, which NumPy 1.18 does not have (measured).
    _cure(
        r"No module named 'numpy\.testing\.(?:nosetester|decorators|utils|noseclasses)'",
        "scipy>=1.1",
        "SciPy before 1.1 imports modules that NumPy 1.18 does not have",
    ),
    _cure(
        _attribute("numpy", "bool|object|int|float|complex|str|typeDict|unicode|long"),
        "numpy<1.24",
        "NumPy 1.24 has no np.bool, np.object, np.int and np.float",
    ),
    # Release notes of NumPy 1.16.3, "Unpickling while loading requires explicit opt-in".
    _cure(
        r"Object arrays cannot be loaded when allow_pickle=False",
        "numpy<1.16.3",
        "NumPy 1.16.3 does not load object arrays without allow_pickle=True",
    ),
    # Release notes of h5py 3.0: strings are read as str. Source: tensorflow/tensorflow issue 44467.
    _cure(
        r"'str' object has no attribute 'decode'",
        "h5py<3",
        "h5py 3 reads strings as str, which old Keras decodes again",
        source=r"^(?:keras|tensorflow|tensorflow_core|h5py)$|h5py|load_(?:model|weights)\(",
    ),
    # Source: Protocol Buffers, "Updates Made on May 6, 2022"; 4.21 is the release after 3.20.
    _cure(
        r"Descriptors cannot (?:not )?be created directly",
        "protobuf<3.21",
        "protobuf 4 does not load code that an older compiler generated",
    ),
    _cure(
        _attribute("google.protobuf.internal", "builder"),
        "protobuf>=3.20",
        "protobuf before 3.20 has no google.protobuf.internal.builder",
    ),
    # gym 0.22.0 draws with pygame. Source: openai/gym issues 2656 and 2779.
    _cure(
        _attribute("gym.envs.classic_control", "rendering") + r"|cannot import name 'rendering'",
        "gym<0.22",
        "gym 0.22 has no rendering module",
    ),
    # Source: openai/gym issue 2674.
    _cure(_attribute("gym.wrappers", "Monitor|monitoring"), "gym<0.23", "gym 0.23 has no Monitor"),
    # Release notes of gym 0.26.0: `step` returns five values, and `reset` two.
    _cure(
        r"too many values to unpack \(expected 4\)",
        "gym<0.26",
        "gym 0.26 returns five values from step",
        source=r"\.step\(",
    ),
    # Release notes of gym 0.24.0: environments have no method `seed`; 0.26 drops it.
    _cure(
        r"'\w{1,60}(?:Env|Wrapper|TimeLimit|OrderEnforcing)' object has no attribute 'seed'",
        "gym<0.26",
        "gym 0.26 has no seed",
    ),
    # Release notes of scikit-learn 0.21 ("deprecated, will be removed in 0.23") and 0.23.
    _cure(
        _attribute("sklearn.externals", "joblib|six|funcsigs")
        + "|"
        + _attribute("sklearn.utils", "linear_assignment_")
        + "|"
        + _attribute("sklearn.metrics", "jaccard_similarity_score"),
        "scikit-learn<0.23",
        "scikit-learn 0.23 has no sklearn.externals.joblib and no other copies of packages",
    ),
    # Release notes of scikit-learn 0.18 ("this module will be removed in 0.20").
    _cure(
        r"No module named 'sklearn\.(?:cross_validation|grid_search|learning_curve|lda|qda)'|"
        + _attribute("sklearn", "cross_validation|grid_search|learning_curve"),
        "scikit-learn<0.20",
        "scikit-learn 0.20 has these in sklearn.model_selection alone",
    ),
    _cure(
        _attribute("sklearn.preprocessing", "Imputer") + r"|cannot import name 'Imputer'",
        "scikit-learn<0.22",
        "scikit-learn 0.22 has no Imputer",
    ),
    _cure(
        _attribute("sklearn.datasets", "fetch_mldata") + r"|cannot import name 'fetch_mldata'",
        "scikit-learn<0.22",
        "scikit-learn 0.22 has no fetch_mldata",
    ),
    _cure(
        r"No module named 'sklearn\.(?:datasets\.samples_generator|ensemble\.forest|"
        r"linear_model\.(?:base|logistic)|tree\.tree|svm\.classes|neighbors\.base|"
        r"preprocessing\.(?:data|label)|decomposition\.pca|utils\.testing|metrics\.classification)'",
        "scikit-learn<0.24",
        "scikit-learn 0.24 has no modules of these names",
    ),
    _cure(
        r"`load_boston` has been removed|"
        + _attribute(
            "sklearn.metrics",
            "plot_(?:roc_curve|"
            r"confusion_matrix|precision_recall_curve)",
        ),
        "scikit-learn<1.2",
        "scikit-learn 1.2 has no load_boston and no plot_ functions",
    ),
    # Keras as a package of its own: 2.2 and 2.3 work with several TensorFlows, 2.4 with 2.2 alone.
    _cure(
        r"Keras requires TensorFlow 2\.\d|"
        r"cannot import name '(?:tf_utils|get_config|keras_export|monitoring)'|"
        r"module 'tensorflow\.compat\.v2' has no attribute '(?:__internal__|keras)'|"
        r"module 'tensorflow' has no attribute '(?:RaggedTensorSpec|OptionalSpec|__internal__)'|"
        r"No module named 'tensorflow\.compat\.v2\.?",
        "keras",
        "this Keras needs a newer TensorFlow",
    ),
    _cure(
        r"module 'tensorflow\.python\.keras\.backend' has no attribute 'get_graph'|"
        r"module 'tensorflow' has no attribute '(?:get_default_graph|placeholder_with_default)'.*"
        r"keras|module 'keras\.backend\.tensorflow_backend' has no attribute '_is_tf_1'",
        "keras",
        "this Keras needs an older TensorFlow",
    ),
    # Release notes of Keras 2.2.3: its applications are in keras_applications.
    _cure(
        r"cannot import name '_obtain_input_shape'",
        "keras<2.2.3",
        "Keras 2.2.3 has no _obtain_input_shape",
    ),
    # Source: the wheels of Keras 2.3.1 and 2.4.3. Later releases are TensorFlow's Keras.
    _cure(
        r"No module named 'keras\.(?:engine\.topology|layers\.(?:normalization|core|convolutional|"
        r"recurrent|merge|advanced_activations|embeddings|pooling|wrappers|noise)|"
        r"utils\.(?:np_utils|training_utils|generic_utils|vis_utils)|backend\.tensorflow_backend|"
        r"legacy|preprocessing\.text|applications\.\w{1,40})'|"
        r"cannot import name '(?:multi_gpu_model|to_categorical)'|"
        r"module 'keras\.(?:engine|backend|utils|optimizers|layers)' has no attribute",
        "keras<2.4",
        "Keras 2.4 has no modules for several backends",
    ),
    # `Graph.node`: release notes of NetworkX 2.4, "Remove deprecated code from 1.x".
    _cure(
        r"'(?:Multi)?(?:Di)?Graph' object has no attribute '(?:node|nodes_iter|edges_iter)'|"
        + _attribute(
            "networkx",
            "connected_component_subgraphs|biconnected_component_subgraphs|"
            "strongly_connected_component_subgraphs",
        ),
        "networkx<2.4",
        "NetworkX 2.4 has no Graph.node and no connected_component_subgraphs",
    ),
    # Release notes of NetworkX 3.0, "Deprecations".
    _cure(
        _attribute(
            "networkx",
            "from_numpy_matrix|to_numpy_matrix|read_gpickle|write_gpickle|info|"
            "read_yaml|write_yaml|to_scipy_sparse_matrix|from_scipy_sparse_matrix",
        ),
        "networkx<3",
        "NetworkX 3 has no matrices and no pickles",
    ),
    # Release notes of librosa 0.10 (0.9 warns): most arguments are by keyword.
    _cure(
        r"\b(?:mel|melspectrogram|mfcc|stft|istft|resample|time_stretch|pitch_shift|chroma_stft|"
        r"load|power_to_db|cqt|griffinlim)\(\) takes (?:from )?\d (?:to \d )?positional arguments?",
        "librosa<0.10",
        "librosa 0.10 has arguments by keyword alone",
    ),
    # librosa before 0.7.2 imports numba.decorators.
    _cure(
        _attribute("librosa", "output"),
        "librosa<0.8 numba<0.50",
        "librosa 0.8 has no librosa.output",
    ),
    _cure(
        _attribute("librosa.feature", "rmse"),
        "librosa<0.7 numba<0.50",
        "librosa 0.7 has no librosa.feature.rmse",
    ),
    _cure(_attribute("librosa.display", "waveplot"), "librosa<0.9", "librosa 0.9 has no waveplot"),
    # Release notes of Numba 0.49 and 0.50; librosa before 0.7.2 imports it.
    _cure(
        r"No module named 'numba\.(?:decorators|targets|jitclass)'",
        "numba<0.50",
        "Numba 0.50 has no numba.decorators",
    ),
    # Release notes of PyYAML 6.0.
    _cure(
        r"load\(\) missing 1 required positional argument: 'Loader'",
        "PyYAML<6",
        "PyYAML 6 has no default loader",
    ),
    _cure(
        r"'(?:DataFrame|Series)' object has no attribute '(?:ix|as_matrix|get_value|set_value)'",
        "pandas<1",
        "pandas 1 has no ix and no as_matrix",
    ),
    _cure(_attribute("pandas", "Panel"), "pandas<0.25", "pandas 0.25 has no Panel"),
    _cure(
        r"'(?:DataFrame|Series)' object has no attribute '(?:append|iteritems)'|"
        r"No module named 'pandas\.util\.testing'",
        "pandas<2",
        "pandas 2 has no DataFrame.append",
    ),
    _cure(r"cannot import name 'PILLOW_VERSION'", "Pillow<7", "Pillow 7 has no PILLOW_VERSION"),
    _cure(
        _attribute("PIL.Image", "ANTIALIAS|LINEAR|CUBIC") + r"|'\w{1,40}Font' object has no "
        r"attribute 'getsize'|'ImageDraw' object has no attribute 'textsize'",
        "Pillow<10",
        "Pillow 10 has no Image.ANTIALIAS and no getsize",
    ),
    _cure(
        _attribute("skimage.measure", "compare_(?:ssim|psnr|mse|nrmse)")
        + r"|cannot import name 'compare_(?:ssim|psnr|mse|nrmse)'",
        "scikit-image<0.18",
        "scikit-image 0.18 has these in skimage.metrics alone",
    ),
    _cure(
        r"The vocab attribute was removed from KeyedVector|"
        r"'Word2Vec' object has no attribute '(?:vocab|syn0|index2word|most_similar)'|"
        r"'KeyedVectors' object has no attribute '(?:vocab|index2word)'",
        "gensim<4",
        "gensim 4 has other names for vocab, size and iter",
    ),
    _cure(
        r"__init__\(\) got an unexpected keyword argument '(?:size|iter)'",
        "gensim<4",
        "gensim 4 has other names for vocab, size and iter",
        source=r"2Vec\(|FastText\(|^gensim$",
    ),
    _cure(_attribute("matplotlib.pyplot", "hold"), "matplotlib<3", "matplotlib 3 has no hold"),
    _cure(
        _attribute("matplotlib.mlab", "normpdf|PCA"),
        "matplotlib<3.1",
        "matplotlib 3.1 has no normpdf and no PCA",
    ),
    _cure(
        _attribute("jinja2", "escape|Markup|contextfilter|evalcontextfilter|environmentfilter"),
        "jinja2<3.1",
        "Jinja 3.1 has no escape and Markup",
    ),
    _cure(
        _attribute("markupsafe", "soft_unicode") + r"|cannot import name 'soft_unicode'",
        "markupsafe<2.1",
        "MarkupSafe 2.1 has no soft_unicode",
    ),
    # The non-free algorithms. Source: opencv-python's README, "Which package".
    _cure(
        r"module 'cv2(?:\.cv2)?' has no attribute '(?:xfeatures2d|ximgproc|face|bgsegm|tracking|"
        r"TrackerKCF_create|saliency|optflow|SIFT|aruco)'",
        "opencv-contrib-python-headless",
        "the contributed modules of OpenCV are in another package",
    ),
    # OpenCV 3 returns three values from findContours; 2.4 and 4 return two.
    _cure(
        r"not enough values to unpack \(expected 3, got 2\)",
        "opencv-python-headless<4",
        "OpenCV 4 returns two values from findContours",
        source="findContours",
    ),
    # dm-sonnet 2 is for TensorFlow 2.
    _cure(
        _attribute("sonnet", "AbstractModule|nets|reuse_variables"),
        "dm-sonnet<2",
        "Sonnet 2 has no AbstractModule",
    ),
    _cure(
        r"type object 'H' has no attribute|No module named 'wandb\.keras'",
        "wandb<0.17",
        "W&B 0.17 has no wandb.keras",
    ),
    _cure(
        r"cannot import name 'HashedCategoricalColumn'|No module named 'tensorflow_hub\.tf_v1'",
        "tensorflow-hub",
        "this TensorFlow Hub needs another TensorFlow",
    ),
    # `_validate_tf_environment` of the package says which.
    _cure(
        r"This version of TensorFlow Probability requires TensorFlow|"
        r"No module named 'tensorflow_probability\.\w{1,40}'",
        "tensorflow-probability",
        "TensorFlow Probability fits one TensorFlow",
    ),
    # Operations that are compiled for one TensorFlow.
    _cure(
        r"tensorflow_addons[^\n]{0,200}undefined symbol|"
        r"cannot import name '(?:keras_tensor|KerasTensor)'",
        "tensorflow-addons",
        "TensorFlow Addons fits one TensorFlow",
    ),
)
#: Causes that no package fixes.
_HOPELESS = (
    # Release notes of Python 3.10, "Removed".
    _cure(
        _attribute("collections", _ABSTRACT),
        "",
        "Python 3.10 has no collections.Iterable. Choose an image with an older Python",
    ),
    # Release notes of Python 3.8, 3.9, 3.11 and 3.12, "Removed".
    _cure(
        _attribute("fractions", "gcd")
        + "|"
        + _attribute("time", "clock")
        + "|"
        + _attribute("inspect", "getargspec")
        + r"|No module named '(?:imp|distutils)'",
        "",
        "newer releases of Python do not have this. Choose an image with an older Python",
    ),
    _cure(
        r"No module named 'tensorflow\.contrib|module 'tensorflow' has no attribute 'contrib'",
        "",
        "TensorFlow 2 has no tf.contrib. Choose a TensorFlow of 1.x",
    ),
    _cure(
        _attribute("tensorflow", _TENSORFLOW_1),
        "",
        "this is code for TensorFlow 1. Choose a TensorFlow of 1.x",
    ),
    _cure(
        _attribute("tensorflow", "function|GradientTape|config|io|random|data")
        + r"|module 'tensorflow\.keras(?:\.\w{1,40}){0,3}' has no attribute|"
        r"module 'tensorflow\._api\.v1",
        "",
        "this TensorFlow is older than the program. Choose another TensorFlow",
    ),
)
#: Modules of Python 2 that Python 3 does not have.
_PYTHON_2 = frozenset(
    (
        *("ConfigParser", "cPickle", "cStringIO", "StringIO", "Queue", "Tkinter", "urllib2"),
        *("urlparse", "commands", "exceptions", "md5", "sets", "thread", "HTMLParser", "httplib"),
        *("__builtin__", "copy_reg", "SocketServer", "BaseHTTPServer", "cookielib", "xmlrpclib"),
    )
)
#: Modules on no package index, or whose package of that name is somebody else's. Source: the facts
#: of 72 repositories.
_NO_INDEX = frozenset(
    (
        *("caffe", "caffe2", "rllab", "universe", "keras_contrib", "blocksparse", "mujoco_py"),
        *("gym_ple", "pycocoevalcap", "carla", "object_detection", "slim", "nets", "datasets"),
        *("maskrcnn", "mrcnn", "utils", "models", "model", "data", "config", "bert", "official"),
        *("ops", "layers", "lib", "src", "common", "helper", "helpers", "tools", "networks", "cfg"),
        *("options", "preprocessing", "dataset", "evaluation", "losses", "network", "misc", "util"),
    )
)
_NOT_PACKAGES: tuple[tuple[Collection[str], str], ...] = (
    (_PYTHON_2, "is a module of Python 2"),
    (sys.stdlib_module_names, "is part of other releases of Python"),
    (_NO_INDEX, "is on no package index under this name; the README may say where it is from"),
)
#: The Debian 12 packages of libraries. Source: packages.debian.org, "Search the contents".
_LIBRARIES = {
    "libGL.so": "libgl1",
    "libGLU.so": "libglu1-mesa",
    "libEGL.so": "libegl1",
    "libOSMesa.so": "libosmesa6",
    "libOpenGL.so": "libopengl0",
    "libGLX.so": "libglx0",
    "libglut.so": "libglut3.12",
    "libglfw.so": "libglfw3",
    "libGLEW.so": "libglew2.2",
    "libgthread-2.0.so": "libglib2.0-0",
    "libglib-2.0.so": "libglib2.0-0",
    "libgobject-2.0.so": "libglib2.0-0",
    "libSM.so": "libsm6",
    "libICE.so": "libice6",
    "libXext.so": "libxext6",
    "libXrender.so": "libxrender1",
    "libX11.so": "libx11-6",
    "libX11-xcb.so": "libx11-xcb1",
    "libxcb.so": "libxcb1",
    "libXi.so": "libxi6",
    "libXrandr.so": "libxrandr2",
    "libXcursor.so": "libxcursor1",
    "libXinerama.so": "libxinerama1",
    "libXfixes.so": "libxfixes3",
    "libXft.so": "libxft2",
    "libXss.so": "libxss1",
    "libXtst.so": "libxtst6",
    "libxkbcommon-x11.so": "libxkbcommon-x11-0",
    "libdbus-1.so": "libdbus-1-3",
    "libfontconfig.so": "libfontconfig1",
    "libfreetype.so": "libfreetype6",
    "libgtk-x11-2.0.so": "libgtk2.0-0",
    "libgtk-3.so": "libgtk-3-0",
    "libsndfile.so": "libsndfile1",
    "libportaudio.so": "libportaudio2",
    "libasound.so": "libasound2",
    "libpulse.so": "libpulse0",
    "libsox.so": "libsox3",
    "libgomp.so": "libgomp1",
    "libgfortran.so": "libgfortran5",
    "libquadmath.so": "libquadmath0",
    "libatlas.so": "libatlas3-base",
    "libcblas.so": "libatlas3-base",
    "libblas.so": "libblas3",
    "liblapack.so": "liblapack3",
    "libopenblas.so": "libopenblas0",
    "libgeos_c.so": "libgeos-c1v5",
    "libspatialindex_c.so": "libspatialindex6",
    "libgdal.so": "libgdal32",
    "libhdf5.so": "libhdf5-103-1",
    "libjpeg.so": "libjpeg62-turbo",
    "libtiff.so": "libtiff6",
    "libpng16.so": "libpng16-16",
    "libwebp.so": "libwebp7",
    "libOpenEXR.so": "libopenexr-3-1-30",
    "libSDL2-2.0.so": "libsdl2-2.0-0",
    "libSDL-1.2.so": "libsdl1.2debian",
    "libavcodec.so": "libavcodec59",
    "libavformat.so": "libavformat59",
    "libusb-1.0.so": "libusb-1.0-0",
    "libzmq.so": "libzmq5",
    "libpq.so": "libpq5",
    "libmagic.so": "libmagic1",
    "libtk8.6.so": "libtk8.6",
    "libtcl8.6.so": "libtcl8.6",
    "libcairo.so": "libcairo2",
    "libpango-1.0.so": "libpango-1.0-0",
    "libgvc.so": "graphviz",
    "libenchant.so": "libenchant-2-2",
    "libespeak.so": "libespeak1",
    "libespeak-ng.so": "libespeak-ng1",
    "libffi.so": "libffi8",
    "libssl.so": "libssl3",
    "libcrypto.so": "libssl3",
    "libatomic.so": "libatomic1",
    "libnuma.so": "libnuma1",
    "libbz2.so": "libbz2-1.0",
    "liblzma.so": "liblzma5",
    "libsqlite3.so": "libsqlite3-0",
    "libncurses.so": "libncurses6",
    "libreadline.so": "libreadline8",
    "libxml2.so": "libxml2",
    "libxslt.so": "libxslt1.1",
    "libcurl.so": "libcurl4",
    "libsodium.so": "libsodium23",
    "libsnappy.so": "libsnappy1v5",
    "liblmdb.so": "liblmdb0",
    "libleveldb.so": "libleveldb1d",
}
#: Libraries of a display that opencv-python needs. Source: its README, "Which package".
_OF_OPENCV = {"libGL", "libSM", "libICE", "libXext", "libXrender", "libX11", "libxcb"}
#: Libraries with another number than Debian 12 has.
_OTHER_NUMBERS = {
    "libjpeg.so.8": "62",
    "libpng12.so.0": "16",
    "libtiff.so.5": "6",
    "libffi.so.6": "8",
    "libffi.so.7": "8",
    "libssl.so.1.0.0": "3",
    "libssl.so.1.1": "3",
    "libgfortran.so.3": "5",
    "libgfortran.so.4": "5",
    "libcrypto.so.1.1": "3",
    "libcrypto.so.1.0.0": "3",
    "libreadline.so.6": "8",
    "libreadline.so.7": "8",
    "libncurses.so.5": "6",
}
#: The Debian packages of programs. Source: as of libraries.
_PROGRAMS = {
    "dot": "graphviz",
    "ffmpeg": "ffmpeg",
    "ffprobe": "ffmpeg",
    "avconv": "ffmpeg",
    "sox": "sox",
    "Xvfb": "xvfb",
    "xvfb-run": "xvfb",
    "git": "git",
    "wget": "wget",
    "curl": "curl",
    "unzip": "unzip",
    "unrar": "unar",
    "7z": "p7zip-full",
    "java": "default-jre-headless",
    "make": "make",
    "gcc": "gcc",
    "g++": "g++",
    "cmake": "cmake",
    "convert": "imagemagick",
    "pdflatex": "texlive-latex-base",
    "tesseract": "tesseract-ocr",
    "espeak": "espeak",
    "flac": "flac",
    "mpg123": "mpg123",
    "mplayer": "mplayer",
    "perl": "perl",
    "lsb_release": "lsb-release",
    "ps": "procps",
    "pkill": "procps",
}


#: The message of uv about the package that it was compiling.
_NOT_COMPILED = re.compile(r"Failed to build `([A-Za-z0-9._-]+)==([^`\s]{1,100})`")
#: The messages of compilers, setuptools, shells and Python about a missing tool or header.
_NO_TOOL = re.compile(
    r"(?:unable to execute|error: command|No such file or directory:) '?(?:[\w-]{1,40}-)?"
    r"(gcc|g\+\+|cc|c\+\+|make|cmake|swig|git)\b|"
    r"\b(gcc|g\+\+|cc|c\+\+|make|cmake|swig|git): (?:command )?not found|"
    r"(CMake|cmake) must be installed"
)
_NO_HEADER = re.compile(r"fatal error: ([\w./+-]{1,100}): No such file or directory")
#: The Debian packages of compilers, and of other tools and headers. Source: as of libraries.
_COMPILERS = ("cmake", "g++", "gcc", "libc6-dev", "make")
_TOOLS = {"swig": "swig", "git": "git"}
_HEADERS = {
    "zlib.h": "zlib1g-dev",
    "bzlib.h": "libbz2-dev",
    "lzma.h": "liblzma-dev",
    "jpeglib.h": "libjpeg-dev",
    "png.h": "libpng-dev",
    "ffi.h": "libffi-dev",
    "openssl/ssl.h": "libssl-dev",
    "sndfile.h": "libsndfile1-dev",
    "portaudio.h": "portaudio19-dev",
    "alsa/asoundlib.h": "libasound2-dev",
    "GL/gl.h": "libgl-dev",
    "GL/glu.h": "libglu1-mesa-dev",
    "GL/osmesa.h": "libosmesa6-dev",
    "GL/glew.h": "libglew-dev",
    "X11/Xlib.h": "libx11-dev",
    "SDL.h": "libsdl2-dev",
    "boost/python.hpp": "libboost-python-dev",
    "geos_c.h": "libgeos-dev",
    "graphviz/cgraph.h": "libgraphviz-dev",
    "hdf5.h": "libhdf5-dev",
    "leveldb/db.h": "libleveldb-dev",
    "lmdb.h": "liblmdb-dev",
    "snappy-c.h": "libsnappy-dev",
    "sqlite3.h": "libsqlite3-dev",
    "yaml.h": "libyaml-dev",
    "numa.h": "libnuma-dev",
}


def find_build_remedy(output: str, build_apt: Collection[str]) -> Remedy | None:
    """Return a remedy for a package that could not be compiled; None for other failures.

    The remedy is the Debian package of a missing tool or header, unless it is in ``build_apt``
    already. Otherwise, only wheels of the package are used. ``output`` is that of the build.
    """
    failures = [*_NOT_COMPILED.finditer(output)]
    if not failures:
        return None
    failed = failures[-1]
    name, version = str(canonicalize_name(failed[1])), failed[2]
    after = output[failed.start() :]
    wanted, words = set[str](), list[str]()
    for match in _NO_TOOL.finditer(after):
        tool = next(filter(None, match.groups()))
        wanted |= {_TOOLS[tool]} if tool in _TOOLS else {*_COMPILERS}
        words.append(tool)
    for match in _NO_HEADER.finditer(after):
        if debian := _HEADERS.get(match[1]):
            wanted.add(debian)
            words.append(match[1])
    if new := wanted - {*build_apt}:
        reason = f"{name} {version} is compiled, which needs {words[0]}"
        return Remedy((), (), reason, build_apt=tuple(sorted({*new, *_COMPILERS})))
    reason = f"{name} {version} cannot be compiled in the image, so only wheels of it are used"
    return Remedy((), (), reason, wheels_only=(name,))


def find_remedy(
    start: Start,
    image: ImageFacts,
    *,
    local_modules: Collection[str] = (),
) -> Remedy | None:
    """Return packages that may fix a failure; None if its cause is not known.

    ``image`` are the facts of the image to which packages are added: its own packages stay as they
    are, or in their bounds. ``local_modules`` are the repository's own top-level modules, which no
    package replaces.
    """
    if start.outcome != "fails":
        return None
    if start.reason == "missing library":
        return _find_library(start.missing, start.package)
    if start.reason == "missing program":
        return _find_program(start.missing)
    for cure in (*_CURES, *_HOPELESS):
        if cure.fits(start):
            return _fit(cure.pip, cure.reason, image)
    if start.reason == "missing module":
        return _find_distribution(start.missing, image, local_modules)
    return None


def _find_library(library: str, package: str) -> Remedy | None:
    """Return the Debian package of a library, by the library's name without the number.

    OpenCV is exchanged for its package without a display, because that is smaller.
    """
    stem = library.partition(".so")[0]
    if package == "cv2" and stem in _OF_OPENCV:
        reason = "opencv-python-headless needs no libraries of a display"
        return Remedy(("opencv-python-headless",), ("libglib2.0-0",), reason)
    if library in _OTHER_NUMBERS:
        number = _OTHER_NUMBERS[library]
        reason = f"Debian 12 has no {library}, but number {number}; take a newer wheel"
        return Remedy((), (), reason)
    debian = _LIBRARIES.get(f"{stem}.so")
    return Remedy((), (debian,), f"{debian} has {library}") if debian else None


def _find_program(program: str) -> Remedy | None:
    package = _PROGRAMS.get(program)
    return Remedy((), (package,), f"{package} has {program}") if package else None


def _find_distribution(
    module: str,
    image: ImageFacts,
    local_modules: Collection[str],
) -> Remedy | None:
    """Return the distribution of a missing module, unless the module is somebody else's."""
    top = module.partition(".")[0]
    if top in local_modules:
        return Remedy((), (), f"{top} is a module of the repository: see PYTHONPATH")
    for names, reason in _NOT_PACKAGES:
        if top in names:
            return Remedy((), (), f"{top} {reason}")
    name = DISTRIBUTIONS.get(module) or DISTRIBUTIONS.get(top) or top
    canonical = str(canonicalize_name(name))
    if name == top and top.isidentifier() and canonical not in KNOWN_PACKAGES:
        return Remedy((), (), f"no package is known for the module {top}")
    if canonical in TENSORFLOW_NAMES or canonical in image.packages:
        return Remedy((), (), f"the image has {canonical}, but not its module {module}")
    return _fit((name,), f"{name} has the module {top}", image)


def _fit(requirements: tuple[str, ...], reason: str, image: ImageFacts) -> Remedy | None:
    """Return the requirements within the image's bounds; none if it refuses the first.

    If the image fulfils the first already, the cause is another.
    """
    fitting: list[str] = []
    for line in requirements:
        requirement = parse_line(line)
        if requirement is None:
            return None
        name = str(canonicalize_name(requirement.name))
        version = image.packages.get(name)
        if version and requirement.specifier.contains(version, prereleases=True):
            if line == requirements[0]:
                return None
            continue
        verdict = judge_line(line, image)
        if verdict.outcome != PASSES:
            if line == requirements[0]:
                return Remedy((), (), f"{reason}; {verdict.reason}")
            continue
        bounds = image.constraints.get(name)
        limits = [str(requirement.specifier), str(bounds) if bounds is not None else ""]
        fitting.append(requirement.name + ",".join(filter(None, limits)))
    return Remedy(tuple(fitting), (), reason)
