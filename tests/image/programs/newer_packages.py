"""Ask pip for every installed package where a newer release of each is on offer; print what it takes.

Argument: the version of each installed package, by name, as JSON. What is on offer is made
here: wheels with nothing but metadata, of the installed release of each package and of release 9999.
pip downloads, so that the image stays as it is.
"""

import json
import os
import subprocess
import sys
import tempfile
import zipfile

PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
NEWER = "9999"
METADATA = "Metadata-Version: 2.1\nName: {}\nVersion: {}\n"
WHEEL = "Wheel-Version: 1.0\nGenerator: imgbuild\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def file_name(name, version):
    return "{}-{}-py3-none-any.whl".format(name.replace("-", "_"), version)


def offer(folder, name, version):
    info = "{}-{}.dist-info".format(name.replace("-", "_"), version)
    with zipfile.ZipFile(os.path.join(folder, file_name(name, version)), "w") as wheel:
        wheel.writestr(info + "/METADATA", METADATA.format(name, version))
        wheel.writestr(info + "/WHEEL", WHEEL)
        wheel.writestr(info + "/RECORD", "")


def download(offered, taken, *packages):
    command = PIP + ["download", "--no-cache-dir", "--no-index", "--no-deps", "--dest", taken]
    return subprocess.run(
        command + ["--find-links", offered] + list(packages),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
    ).stdout


def main(installed):
    with tempfile.TemporaryDirectory() as offered, tempfile.TemporaryDirectory() as taken:
        for name, version in installed.items():
            offer(offered, name, version)
            offer(offered, name, NEWER)
        said = download(offered, taken, *installed)
        files = set(os.listdir(taken))
        refused = download(offered, taken, "numpy==" + NEWER)
    kept = [name for name, version in installed.items() if file_name(name, version) in files]
    print(json.dumps({"kept": kept, "said": said[-500:], "refused": refused[-500:]}))


main(json.loads(sys.argv[1]))
