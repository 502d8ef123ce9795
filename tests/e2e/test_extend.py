"""`imgbuild extend` on real images: what it adds, what it refuses, what is left of a failure."""

import json
import signal
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from checkout import COPY_REPOSITORY, Base, Checkout
from own_dockerd import OwnDockerd
from secret_marks import marked_secrets, require_unmarked
from small_project import REPOSITORY, SmallProject, small_project

from imgbuild.dockerfile.lockfile import parse_lock
from imgbuild.settings import load_settings
from waiting import wait_for

NAME = "tf-2.2-cpu-debian"
#: What shells and Dockerfiles would like to do something with.
VALUE = 'a "b" $HOME \\ `id` c\'d'
SYSTEM_BUNDLE = "/etc/ssl/certs/ca-certificates.crt"


@pytest.fixture
def tag(checkout: Checkout) -> Iterator[str]:
    made = f"imgbuild-e2e-extended/{uuid.uuid4().hex[:12]}:1"
    yield made
    checkout.docker("rmi", "--force", made)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a folder with an extension in it: packages of both kinds, a variable, files, a user."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("print('trained')\n", encoding="utf-8")
    (tmp_path / "requirements.txt").write_text("keras==2.3.1\ntensorflow>=2.2\n", encoding="utf-8")
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
    found = checkout.docker("image", "inspect", image, code=0).stdout
    config: dict[str, Any] = json.loads(found)[0]["Config"]
    return config


def _printed(checkout: Checkout, image: str, *command: str) -> str:
    return checkout.docker("run", "--rm", "--network=none", image, *command, code=0).stdout.strip()


def test_what_is_added_is_there(
    base: Callable[[str], Base], checkout: Checkout, folder: Path, tag: str
) -> None:
    on = base(NAME).tag
    made = checkout.run("extend", "-f", str(folder / "train.yaml"), "-t", tag, "--no-test")
    assert f"{tag}: " in made.stdout
    locked = parse_lock((folder / "train.lock.txt").read_text(encoding="utf-8"), "train.lock.txt")
    assert {*locked.versions} == {"docopt", "keras", "keras-applications", "scipy"}
    assert all(locked.hashes.values())
    program = "import keras, docopt, os; print(keras.__version__, os.getuid(), os.environ['WORDS'])"
    assert _printed(checkout, tag, "python", "-c", program) == f"2.3.1 1000 {VALUE}"
    login = ("env", "-i", "bash", "-lc", 'echo "$WORDS"')
    assert _printed(checkout, tag, *login) == VALUE
    assert _printed(checkout, tag, "python", "/opt/app/train.py") == "trained"
    assert "libsndfile.so.1" in _printed(checkout, tag, "/sbin/ldconfig", "-p")
    assert (
        _printed(checkout, tag, "python", "-m", "pip", "check") == "No broken requirements found."
    )
    labels = _config(checkout, tag)["Labels"]
    assert labels["org.opencontainers.image.base.name"] == on
    assert labels["org.opencontainers.image.base.digest"].startswith("sha256:")
    assert labels["imgbuild.extends"] == NAME
    assert labels["imgbuild.added.apt"] == "libsndfile1"
    assert labels["imgbuild.added.pip"].split() == [f"{n}=={v}" for n, v in locked.versions.items()]
    assert _config(checkout, tag)["Entrypoint"] == _config(checkout, on)["Entrypoint"]
    lock = ("--lock", str(folder / "again.txt"))
    again = checkout.run("extend", "--base", tag, "--pip", "keras", "-t", tag, "--no-test", *lock)
    assert "adds nothing, the base has all of it" in again.stderr
    assert _config(checkout, tag)["User"] == "1000"


def test_what_does_not_fit_changes_nothing(
    base: Callable[[str], Base], checkout: Checkout, tmp_path: Path, tag: str
) -> None:
    base(NAME)
    lock = tmp_path / "train.lock.txt"
    options = ("--name", NAME, "--pip", "numpy==1.21", "-t", tag, "--lock", str(lock))
    refused = checkout.run("extend", *options, code=2)
    assert f"{NAME} depends on numpy==1.18.5" in refused.stderr
    assert "you require numpy==1.21" in refused.stderr
    assert not lock.exists()
    assert checkout.docker("image", "inspect", tag).returncode != 0


def test_docker_builds_what_is_printed(
    base: Callable[[str], Base], checkout: Checkout, folder: Path, tag: str
) -> None:
    base(NAME)
    path = folder / "train.yaml"
    text = checkout.run("extend", "-f", str(path), "-t", tag, "--print").stdout
    (folder / "Dockerfile").write_text(text, encoding="utf-8")
    bundle = load_settings(checkout.project.settings).ca_bundle or SYSTEM_BUNDLE
    built = ("build", "--quiet", f"--secret=id=ca,src={bundle}", f"--tag={tag}", str(folder))
    checkout.docker(*built, code=0)
    program = "import keras, os; print(keras.__version__, os.getuid(), os.environ['WORDS'])"
    assert _printed(checkout, tag, "python", "-c", program) == f"2.3.1 1000 {VALUE}"


def test_secrets_are_left_behind(copy: Checkout, tmp_path: Path, tag: str) -> None:
    copy.run("build", "--tf", "2.2", "--no-test")
    mark = marked_secrets(copy, tmp_path)
    # The build itself sees that they are there; the steps are new ones, so nothing is cached.
    with (copy.root / "images" / "files" / "network.sh").open("a", encoding="utf-8") as script:
        looks = "grep -q '^# mark ' /run/secrets/ca\ngrep -q mirror.invalid \"$NETRC\""
        script.write(f"{looks}\n# {tmp_path.name}\n")
    lock = ("--lock", str(tmp_path / "lock.txt"))
    options = (f"--base={COPY_REPOSITORY}:2.2-cpu-debian", "--pip=docopt", "--apt=libsndfile1")
    copy.run("extend", *options, "-t", tag, "--no-test", *lock)
    require_unmarked(copy, tag, mark)


@pytest.mark.nightly
def test_the_suites_of_the_base_pass(
    base: Callable[[str], Base], checkout: Checkout, folder: Path, tag: str
) -> None:
    base(NAME)
    made = checkout.run("extend", "-f", str(folder / "train.yaml"), "-t", tag)
    assert f"suites of {NAME} passed in it" in made.stdout


@pytest.fixture(scope="module")
def small(dockerd: OwnDockerd, tmp_path_factory: pytest.TempPathFactory) -> SmallProject:
    """Give a project whose image `tf-1.10-cpu-debian` is built in a second, tested in two."""
    project = small_project(tmp_path_factory.mktemp("extended"), dockerd.host)
    project.run("build", "--tf", "1.10")
    (project.root / "more").write_text("more\n", encoding="utf-8")
    return project


SMALL = ("extend", "--tf", "1.10", "-t", "me/small:1")
BASE = f"{REPOSITORY}:1.10-cpu-debian"


def _images(project: SmallProject) -> set[str]:
    listed = project.docker("images", "--all", "--quiet", "--no-trunc", code=0).stdout
    return {*listed.split()}


def test_suites_decide_about_the_tag(small: SmallProject) -> None:
    small.run(*SMALL, "--copy", "more:/opt/more")
    named = small.docker("image", "inspect", "--format={{.Id}}", "me/small:1", code=0).stdout
    before = _images(small)
    # The suite counts what is in this folder.
    failed = small.run(*SMALL, "--copy", "more:/files/more", code=1)
    assert f"suites of {'tf-1.10-cpu-debian'} fail in it: files: " in failed.stderr
    assert small.docker("image", "inspect", "--format={{.Id}}", "me/small:1").stdout == named
    assert _images(small) == before
    assert small.left() == []
    small.run(*SMALL, "--copy", "more:/files/more", "--no-test")
    assert small.docker("image", "inspect", "--format={{.Id}}", "me/small:1").stdout != named


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_no_image(small: SmallProject, number: signal.Signals) -> None:
    before = _images(small)
    small.pause("suite", 300)
    command = ("extend", "--tf", "1.10", "-t", "me/other:1", "--env", f"N={number}")
    with subprocess.Popen(
        small.command(*command),
        cwd=small.root,
        env=small.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        wait_for(small.in_suite, 120)
        process.send_signal(number)
        _, said = process.communicate(timeout=180)
    small.pause("suite", 0)
    assert process.returncode == 130, said
    assert "No tag was made or moved" in said
    assert small.docker("image", "inspect", "me/other:1").returncode != 0
    assert _images(small) == before
    assert small.left() == []
