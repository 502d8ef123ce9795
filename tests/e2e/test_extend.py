"""`imgbuild extend` on real images: what it adds, what it refuses, what is left of a failure."""

import json
import re
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from imgbuild.locks.lockfile import parse_lock
from support.checkout import Bases, Checkout
from support.copied_checkout import ca_bundle
from support.own_dockerd import OwnDockerd
from support.small_project import NAMES, ONE, SmallProject, small_project

NAME = "tf-2.2-cpu-debian"
#: What shells and Dockerfiles would like to do something with.
VALUE = 'a "b" $HOME \\ `id` c\'d'
PROGRAM = (
    "import keras, docopt, os, own; print(keras.__version__, os.getuid(), os.environ['WORDS'])"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a folder with an extension in it: packages of both kinds, a variable, files, a user."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("print('trained')\n", encoding="utf-8")
    wheel = tmp_path / "dist" / "own-1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    with ZipFile(wheel, "w") as archive:
        archive.writestr("own.py", "")
        info = "own-1.0.dist-info"
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: own\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", f"own.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n")
    lines = ("keras==2.3.1", "tensorflow>=2.2", f"./dist/{wheel.name}", "-c held.txt", "")
    (tmp_path / "requirements.txt").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "held.txt").write_text("scipy<1.5\n", encoding="utf-8")
    document = {
        "name": NAME,
        "pip": ["docopt"],  # without a wheel
        "requirements": ["requirements.txt"],
        "apt": ["libsndfile1"],
        "env": {"WORDS": VALUE},
        "copy": ["src:/opt/app"],
        "user": 1000,
    }
    (tmp_path / "train.yaml").write_text(json.dumps(document), encoding="utf-8")  # JSON is YAML
    return tmp_path


def _config(checkout: Checkout, image: str) -> dict[str, Any]:
    found = json.loads(checkout.printed("image", "inspect", image))
    return dict(found[0]["Config"])


def _printed(checkout: Checkout, image: str, *command: str) -> str:
    return checkout.printed("run", "--rm", "--network=none", image, *command)


def test_what_is_added_is_there(base: Bases, checkout: Checkout, folder: Path, tag: str) -> None:
    on = base(NAME).tag
    made = checkout.run("extend", "-f", str(folder / "train.yaml"), "-t", tag, "--no-test")
    assert f"{tag}: " in made.stdout
    locked = parse_lock((folder / "train.lock.txt").read_text(encoding="utf-8"), "train.lock.txt")
    assert {*locked.versions} == {"docopt", "keras", "keras-applications", "own", "scipy"}
    assert locked.versions["scipy"].startswith("1.4.")
    assert all(locked.hashes.values())
    assert _printed(checkout, tag, "python", "-c", PROGRAM) == f"2.3.1 1000 {VALUE}"
    login = ("env", "-i", "bash", "-lc", 'echo "$WORDS"')
    assert _printed(checkout, tag, *login) == VALUE
    assert _printed(checkout, tag, "python", "/opt/app/train.py") == "trained"
    assert "libsndfile.so.1" in _printed(checkout, tag, "/sbin/ldconfig", "-p")
    _printed(checkout, tag, "python", "-m", "pip", "check")
    labels = _config(checkout, tag)["Labels"]
    assert labels["org.opencontainers.image.base.name"] == on
    assert labels["org.opencontainers.image.base.digest"].startswith("sha256:")
    assert labels["imgbuild.extends"] == NAME
    assert labels["imgbuild.added.apt"] == "libsndfile1"
    assert labels["imgbuild.added.pip"].split() == [f"{n}=={v}" for n, v in locked.versions.items()]
    assert _config(checkout, tag)["Entrypoint"] == _config(checkout, on)["Entrypoint"]
    lock = ("--lock", str(folder / "again.txt"))
    again = checkout.run("extend", tag, "--pip", "keras", "-t", tag, "--no-test", *lock)
    assert "adds nothing" in again.stderr
    assert _config(checkout, tag)["User"] == "1000"


def test_a_replaced_package_leaves_nothing_behind(
    base: Bases, checkout: Checkout, tmp_path: Path, tag: str
) -> None:
    """No lock of uv; and the keys with which `future` tests are no secret."""
    base(NAME)
    options = ("-t", tag, "--lock", str(tmp_path / "x.lock.txt"), "--test", "short")
    checkout.run("extend", NAME, "--pip", "absl-py==0.9.0", "--pip", "future", *options)
    assert _printed(checkout, tag, "python", "-c", "import absl, future") == ""


def test_what_does_not_fit_changes_nothing(
    base: Bases, checkout: Checkout, tmp_path: Path, tag: str
) -> None:
    base(NAME)
    lock = tmp_path / "train.lock.txt"
    options = (NAME, "--pip", "numpy==1.21", "-t", tag, "--lock", str(lock))
    refused = checkout.run("extend", *options, code=2)
    assert "numpy==1.21: the image has 1.18.5" in refused.stderr
    assert not lock.exists()
    assert checkout.docker("image", "inspect", tag).returncode != 0


def test_docker_builds_what_is_printed(
    base: Bases, checkout: Checkout, folder: Path, tag: str
) -> None:
    base(NAME)
    text = checkout.run("extend", "-f", str(folder / "train.yaml"), "-t", tag, "--print").stdout
    (folder / "Dockerfile").write_text(text, encoding="utf-8")
    found = re.findall(r"^#   docker (tag (\S+) (local\.invalid\S+))$", text, re.MULTILINE)
    (tagging, *others) = found  # also the base image of the system, if it was made here
    assert tagging[2].rpartition(":")[2] == tagging[1].removeprefix("sha256:")
    assert all(one[1].startswith("imgbuild/base:") for one in others)
    for command, _, _ in found:
        checkout.printed(*command.split())
    secret = f"--secret=id=ca,src={ca_bundle(checkout.root)}"
    try:
        checkout.printed("build", "--quiet", secret, f"--tag={tag}", str(folder))
    finally:
        for _, _, name in found:
            checkout.docker("rmi", name)
    assert _printed(checkout, tag, "python", "-c", PROGRAM) == f"2.3.1 1000 {VALUE}"


@pytest.mark.nightly
def test_the_suites_of_the_base_pass(
    base: Bases, checkout: Checkout, folder: Path, tag: str
) -> None:
    base(NAME)
    file = str(folder / "train.yaml")
    made = checkout.run("extend", "-f", file, "-t", tag, "--test", "all")
    assert f"suites of {NAME} passed" in made.stdout


@pytest.mark.parametrize("name", ["alone", "broken"])
def test_requested_packages_are_imported(
    base: Bases, checkout: Checkout, tmp_path: Path, tag: str, name: str
) -> None:
    """The tag is not set if one cannot be; the error is Python's last line."""
    base(NAME)
    code = {"alone": "", "broken": "import json, tensorflow.no_such_module\n"}[name]
    with ZipFile(tmp_path / f"{name}-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{name}.py", code)
        info = f"{name}-1.0.dist-info"
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", f"{name}.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n")
    file = tmp_path / "train.yaml"
    file.write_text(f"name: {NAME}\npip: [{name}-1.0-py3-none-any.whl]\n", encoding="utf-8")
    made = checkout.run("extend", "-f", str(file), "-t", tag, code=0 if name == "alone" else 1)
    if name == "alone":
        assert _config(checkout, tag)["Labels"]["imgbuild.tested"] == "short"
        return
    assert "imports: " in made.stderr
    assert "No module named 'tensorflow.no_such_module'" in made.stderr
    assert checkout.docker("image", "inspect", tag).returncode != 0


@pytest.fixture(scope="module")
def small(dockerd: OwnDockerd, tmp_path_factory: pytest.TempPathFactory) -> SmallProject:
    project = small_project(tmp_path_factory.mktemp("extended"), dockerd.host)
    project.run(*ONE)
    (project.root / "more").write_text("more\n", encoding="utf-8")
    return project


SMALL = ("extend", "--tf", "1.10", "-t", "me/small:1")
ID = ("image", "inspect", "--format={{.Id}}", "me/small:1")


def test_suites_decide_about_the_tag(small: SmallProject) -> None:
    small.run(*SMALL, "--copy", "more:/opt/more", "--test", "all")
    small.run("test", "me/small:1")  # its label says what it must be
    named = small.printed(*ID)
    before = small.images()
    # The suite counts what is in this folder.
    failed = small.run(*SMALL, "--copy", "more:/files/more", "--test", "all", code=1)
    assert f"suites of {NAMES[0]} did not pass in it: files: " in failed.stderr
    assert small.printed(*ID) == named
    assert small.images() == before
    assert small.left() == []
    small.run(*SMALL, "--copy", "more:/files/more", "--no-test")
    assert small.printed(*ID) != named
