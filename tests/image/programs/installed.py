"""Print what this image's Python has: its version and prefix, its modules, its distributions.

Arguments: the modules to import. A module that cannot be imported is reported with its error, so
that the others still get their verdict. Distributions are read from their metadata on sys.path,
which needs no setuptools and shows a package that is there twice. What setuptools brings for itself
is not installed, though pkg_resources, once imported, has it on sys.path (setuptools 71 and newer).
"""

import email.parser
import glob
import importlib
import json
import os
import platform
import sys
import warnings

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
warnings.simplefilter("ignore")

VENDORED = os.path.join("setuptools", "_vendor")
METADATA = ("*.dist-info/METADATA", "*.egg-info/PKG-INFO", "*.egg-info")
VERSION_MODULE = {"tensorboard": "tensorboard.version"}  # TensorBoard 1.x has no __version__


def module_version(name):
    try:
        module = importlib.import_module(VERSION_MODULE.get(name, name))
        return {"version": getattr(module, "__version__", None) or module.VERSION, "error": None}
    except Exception as error:  # an import can fail in any way, and each is the answer
        return {"version": None, "error": "{}: {}".format(type(error).__name__, error)}


def metadata_files():
    folders = {os.path.realpath(folder) for folder in sys.path if folder}
    folders = {folder for folder in folders if not folder.endswith(VENDORED)}
    found = (glob.glob(os.path.join(folder, kind)) for folder in folders for kind in METADATA)
    return sorted(file for files in found for file in files if os.path.isfile(file))


def distribution(file):
    with open(file, encoding="utf-8", errors="replace") as stream:
        headers = email.parser.Parser().parse(stream, headersonly=True)
    return [headers["Name"], headers["Version"]]


print(
    json.dumps(
        {
            "python": platform.python_version(),
            "prefix": sys.prefix,
            "modules": {name: module_version(name) for name in sys.argv[1:]},
            "distributions": [distribution(file) for file in metadata_files()],
        }
    )
)
