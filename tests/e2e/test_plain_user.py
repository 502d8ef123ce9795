"""A user without root, sudo and mmdebstrap, whose engine answers, builds images."""

import grp
import os
import re
import subprocess
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from imgbuild.engine.client import Engine
from imgbuild.inputs.base import Base
from standin.__main__ import open_context
from standin.workbench import load_debian
from support.checkout import ROOT, Checkout, not_imgbuilds
from support.copied_checkout import (
    INPUTS,
    change_settings,
    copied_checkout,
    remove_images,
    substitute_cpython,
    take_base,
    tiny,
)
from support.own_registry import OwnRegistry, free_port, own_registry

REPOSITORY = "imgbuild-plain-user/tensorflow"
ONE = ("--tf", "1.10")
TAG = f"{REPOSITORY}:1.10-cpu"
RANKS = "import horovod.tensorflow as h; h.init(); print('rank', h.rank())"
NOTHING = '"""Nothing."""\ndef test_nothing(): pass\n'
SMALL = "FROM base AS os\nFROM os AS final\nRUN --network=none id > /id\n"
#: Let everybody into a folder, in a mount namespace of its own, then run a command.
_ENTER = """\
mount -t overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" overlay "$1"
chmod 755 "$1"
shift 2
exec "$@"
"""


@dataclass(frozen=True)
class PlainUser(Checkout):
    """A checkout of a user who may use the engine and nothing else, with a home of their own."""

    name: str = ""

    @property
    def home(self) -> Path:
        return self.root.parent / "home"

    @property
    def environment(self) -> dict[str, str]:
        kept = {"PATH", "LANG", "SSL_CERT_FILE", "UV_DEFAULT_INDEX", "HTTPS_PROXY"}
        found = {name: value for name, value in not_imgbuilds(os.environ).items() if name in kept}
        modules = os.pathsep.join([str(ROOT / "build"), sysconfig.get_path("purelib")])
        own = {"HOME": str(self.home), "USER": self.name, "PYTHONPATH": modules}
        return {**found, **own, "DOCKER_HOST": str(self.host), "COLUMNS": "200"}

    def command(self, *arguments: str) -> list[str]:
        return self.as_user(*super().command(*arguments))

    def docker(
        self, *arguments: str, code: int | None = None, timeout: int = 300
    ) -> subprocess.CompletedProcess[str]:
        return self.typed(self.as_user("docker", *arguments), code, timeout)

    def as_user(self, *command: str) -> list[str]:
        """Return the command as this user's; root's home is open to it where it is needed."""
        user = ["setpriv", f"--reuid={self.name}", f"--regid={self.name}", "--init-groups"]
        user += ["--no-new-privs", "--inh-caps=-all", "--bounding-set=-all", *command]
        closed = Path.home()
        if closed.stat().st_mode & 0o5 == 0o5:
            return user
        layers = self.root.parent / "layers"
        return ["unshare", "--mount", "sh", "-euc", _ENTER, "sh", str(closed), str(layers), *user]

    def prepare(self, *parts: str, files: Mapping[str, str] | None = None, base: str) -> None:
        """Make the checkout, whose matrix pins ``base`` and whose settings name none."""
        copied_checkout(self.root, REPOSITORY, parts, files or {}, host=self.host)
        change_settings(self.root, base=None)
        self.own()
        self.edit("matrix.yaml", "\n  debian-12:\n", f"\n  debian-12:\n    image: {base}\n")

    def own(self) -> None:
        """Let the checkout and the home be the user's."""
        subprocess.run(["chown", "-R", f"{self.name}:", self.root, self.home], check=True)


@pytest.fixture
def user(host: str | None, engine: Engine) -> Iterator[PlainUser]:
    """Give a new user who may use the engine's socket."""
    if os.geteuid() or not host or not host.startswith("unix://"):
        pytest.skip("only root makes users, and lets them use the socket of an engine")
    group = grp.getgrgid(Path(host.removeprefix("unix://")).stat().st_gid).gr_name
    name = f"imgbuild{os.getpid()}"
    with TemporaryDirectory(prefix="imgbuild-user-") as parent:
        folder = Path(parent)
        folder.chmod(0o755)
        for inner in ("checkout", "layers/upper", "layers/work"):
            (folder / inner).mkdir(parents=True)
        options = ("--create-home", f"--home-dir={folder}/home", f"--groups={group}")
        subprocess.run(["useradd", *options, name], check=True)
        try:
            yield PlainUser(folder / "checkout", folder / "home/.local/state", host, name=name)
        finally:
            subprocess.run(["userdel", name], check=False)
            remove_images(engine, REPOSITORY)


@pytest.fixture
def made(checkout: Checkout) -> Base:
    """Return the base image that is made here; the engine has it."""
    return load_debian(open_context(checkout.project))


@pytest.fixture
def pinned(user: PlainUser, made: Base, engine: Engine) -> Iterator[tuple[str, OwnRegistry]]:
    """Give a base image by digest, which only a registry has, and that registry."""
    with own_registry(user.home.parent / "registry") as registry:
        name = f"{registry.host}/debian"
        engine.tag(made.reference, f"{name}:12")
        pushed = user.docker("push", f"{name}:12", code=0)
        engine.untag(f"{name}:12")
        digest = next(word for word in pushed.stdout.split() if word.startswith("sha256:"))
        reference = f"{name}@{digest}"
        user.docker("rmi", reference)
        assert engine.inspect(reference) is None
        yield reference, registry
        user.docker("rmi", reference)


def test_the_base_comes_from_the_registry(
    user: PlainUser, pinned: tuple[str, OwnRegistry], engine: Engine
) -> None:
    reference, registry = pinned
    user.prepare("images", "tests/image", base=reference)
    assert "  build  " in user.run("build", *ONE, "--dry-run").stdout
    assert engine.inspect(reference) is None, "a plan pulls nothing"
    built = user.run("build", *ONE, "--no-test")
    assert f"pulling the base image {reference}" in built.stderr
    labels = engine.need(TAG).labels
    assert labels["imgbuild.input.base"] == "registry"
    assert labels["org.opencontainers.image.base.digest"] == reference.partition("@")[2]
    mpirun = ("mpirun", "-np", "2", "--oversubscribe", "python", "-c", RANKS)
    said = user.docker("run", "--rm", "--network=none", TAG, *mpirun)
    assert sorted(re.findall(r"rank \d", said.stdout)) == ["rank 0", "rank 1"], said.stderr
    registry.stop()
    again = user.run("build", *ONE, "--no-test")
    assert again.stdout.startswith("Nothing to do")
    assert "pulling" not in again.stderr
    assert not [*user.home.glob(".cache/imgbuild/base/*")]


def test_where_no_registry_answers_the_base_is_made_before_the_build(
    user: PlainUser, made: Base, engine: Engine
) -> None:
    closed = f"127.0.0.1:{free_port()}/debian@sha256:{'0' * 64}"
    user.prepare(*INPUTS, files=tiny(SMALL, nothing=NOTHING), base=closed)
    take_base(user.root, user.home / ".cache")
    substitute_cpython(user.root, user.home / ".cache")
    user.own()
    refused = user.run("build", *ONE, "--no-test", code=3)
    assert "imgbuild doctor --write" in refused.stderr
    assert engine.inspect(TAG) is None
    prepared = user.run("matrix", *ONE, "--make-bases")
    assert "No registry answers" in prepared.stderr
    assert f"instead of {closed}; --refresh asks the registry again." in prepared.stderr
    user.run("build", *ONE, "--no-test")
    labels = engine.need(TAG).labels
    assert labels["imgbuild.input.base"] == "bootstrapped"
    assert labels["org.opencontainers.image.base.digest"] == made.digest
    assert "uid=0" in user.docker("run", "--rm", TAG, "cat", "/id").stdout
    again = user.run("build", *ONE, "--no-test")
    assert again.stdout.startswith("Nothing to do")
    assert "No registry" not in again.stderr
    refused = user.run("push", *ONE, "--to", f"127.0.0.1:{free_port()}/ml/x", code=1)
    assert "its base image debian-12 is substituted: bootstrapped, not registry" in refused.stderr
    shown = user.run("doctor", "--stack", "debian", code=None).stdout
    assert f"no registry had {closed}; `imgbuild build --refresh` asks again" in shown
