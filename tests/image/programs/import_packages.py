"""Import a top module of each distribution that is named, and say why those cannot be imported.

Which modules a distribution has is read from its RECORD. The module with its own name has to be
imported if there is one, else any of its modules; tests, documentation and private modules do not
count. A distribution without modules, such as one of type hints alone, is fine.
"""

import json
import multiprocessing.pool
import os
import re
import subprocess
import sys
import tempfile

from patience import allowed

SECONDS = allowed(120)
#: So many modules of a distribution are tried; namespaces have hundreds.
MOST = 10
NO_CODE = {"test", "tests", "testing", "doc", "docs", "example", "examples", "benchmarks"}
MODULE = re.compile(r"([A-Za-z][A-Za-z0-9_]*)(\.[A-Za-z0-9_-]+)?\.(py|so)")
START = re.compile(r"__init__(\.[A-Za-z0-9_-]+)?\.(py|so)")
FOLDER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
CHILD = """
import importlib, sys, traceback
try:
    importlib.import_module(sys.argv[1])
except BaseException as error:
    words = "".join(traceback.format_exception_only(type(error), error))
    sys.exit("\\n" + " ".join(words.split()))
"""


def canonical(name):
    return re.sub("[-_.]+", "-", name).lower()


def record(name):
    """Return the paths of a distribution's files, below the folder that it is installed in."""
    for folder in sys.path:
        if not os.path.isdir(folder):
            continue
        for entry in os.listdir(folder):
            known = entry.endswith(".dist-info") and entry.rpartition(".")[0].partition("-")[0]
            path = os.path.join(folder, entry, "RECORD")
            if known and canonical(known) == name and os.path.isfile(path):
                with open(path, encoding="utf-8") as stream:
                    return [line.partition(",")[0].strip('"') for line in stream]
    return []


def top_modules(name):
    """Return the modules of a distribution that are in none of its own packages, best first."""
    paths = [path.split("/") for path in record(name)]
    packages = {tuple(path[:-1]) for path in paths if START.fullmatch(path[-1]) and path[:-1]}
    found = {
        package
        for package in packages
        if not any(package[:depth] in packages for depth in range(1, len(package)))
    }
    found |= {
        (match.group(1),)
        for match in (MODULE.fullmatch(path[0]) for path in paths if len(path) == 1)
        if match
    }
    wanted = [
        ".".join(module)
        for module in sorted(found, key=lambda module: (len(module), module))
        if all(FOLDER.fullmatch(part) for part in module)
        and not module[0].startswith("_")
        and module[0] not in NO_CODE
    ]
    own = [module for module in wanted if canonical(module) == name]
    return own or wanted[:MOST]


def import_one(module):
    """Return why a module cannot be imported, if so, and whether that is for want of time."""
    environment = dict(os.environ, CUDA_VISIBLE_DEVICES="-1", TF_CPP_MIN_LOG_LEVEL="3")
    pipe = subprocess.PIPE
    with tempfile.TemporaryDirectory() as folder:  # nothing of the current folder is imported
        command = [sys.executable, "-c", CHILD, module]
        child = subprocess.Popen(command, cwd=folder, env=environment, stdout=pipe, stderr=pipe)
        try:
            _, errors = child.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()
            return "it did not end within {} s".format(SECONDS), True
    if child.returncode < 0:
        return "signal {} ended it".format(-child.returncode), False
    words = errors.decode(errors="replace").strip().splitlines() or ["no word"]
    return (words[-1] if child.returncode else ""), False


def import_any(name):
    """Return the outcome of the first module that can be imported, else that of the first."""
    outcomes = []
    for module in top_modules(canonical(name)):
        error, late = import_one(module)
        outcomes.append({"module": module, "error": error, "late": late})
        if not error:
            return outcomes[-1]
    return outcomes[0] if outcomes else {"module": "", "error": "", "late": False}


def main(names):
    with multiprocessing.pool.ThreadPool(os.cpu_count()) as pool:
        return dict(zip(names, pool.map(import_any, names)))


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1:])))
