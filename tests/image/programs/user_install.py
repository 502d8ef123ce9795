"""Install, for one user, a package that requires TensorFlow; start it, and try to replace TensorFlow.

Arguments: the names that packages require TensorFlow by, with the versions that pip sees, as JSON;
distributions that must be refused, as JSON. What is on offer is made here, of wheels with nothing
but metadata. Prints the home, the user's name, what the script says, what was installed beside it,
and which of the attempts pip did not refuse.
"""

import getpass
import json
import os
import subprocess
import sys
import tempfile
import zipfile

PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--user"]
WHEEL = "Wheel-Version: 1.0\nGenerator: imgbuild\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
SCRIPT = "asks-for-tensorflow"


def offer(folder, name, version, requires=(), **files):
    module = name.replace("-", "_")
    info = "{}-{}.dist-info/".format(module, version)
    metadata = "Metadata-Version: 2.1\nName: {}\nVersion: {}\n".format(name, version)
    metadata += "".join("Requires-Dist: {}\n".format(one) for one in requires)
    file = os.path.join(folder, "{}-{}-py3-none-any.whl".format(module, version))
    with zipfile.ZipFile(file, "w") as wheel:
        wheel.writestr(info + "METADATA", metadata)
        wheel.writestr(info + "WHEEL", WHEEL)
        for name, text in files.items():
            wheel.writestr(info + name if name.endswith(".txt") else name, text)
        wheel.writestr(info + "RECORD", "")


def run(command):
    return subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True
    )


def user_name():
    """Return the name that getpass finds; none if the user has none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def main(provided, others):
    with tempfile.TemporaryDirectory() as offered:
        point = "[console_scripts]\n{} = asks_for_tensorflow:main\n".format(SCRIPT)
        files = {"entry_points.txt": point, "asks_for_tensorflow.py": "def main(): print('here')\n"}
        offer(offered, SCRIPT, "1", sorted(provided), **files)
        for name in [*provided, *others]:
            offer(offered, name, "9999")
        for name, version in provided.items():
            offer(offered, name, version.partition("+")[0])
        pip = PIP + ["--no-index", "--find-links", offered]
        installed = run(pip + [SCRIPT])
        found = os.listdir(os.path.join(os.path.expanduser("~"), ".local", "lib"))
        packages = os.path.join(os.path.expanduser("~"), ".local", "lib", found[0], "site-packages")
        beside = sorted(name for name in os.listdir(packages) if name.endswith("-info"))
        tries = [["--force-reinstall", name] for name in provided if "+" in provided[name]]
        tries += [["--upgrade", name + "==9999"] for name in [*provided, *others]]
        tries += [[name] for name in others]
        taken = [" ".join(words) for words in tries if not run(pip + words).returncode]
    said = run([SCRIPT]).stdout.strip()
    home = os.path.expanduser("~")
    print(json.dumps([home, user_name(), said, beside, taken, installed.stdout[-500:]]))


main(*map(json.loads, sys.argv[1:]))
