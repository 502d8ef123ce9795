"""Debian's archive as it was at a date, from a service for tests: two dates, one package.

Its indexes have expired, as those of every snapshot; ``images/files/apt/install`` is the real one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

from imgbuild.build.context import BuildOptions, open_context
from imgbuild.build.fetch import fetch_files, plan_listing
from imgbuild.core.errors import MachineError
from imgbuild.core.files import ContentStore
from imgbuild.core.user_folders import cache_dir
from imgbuild.engine.client import Engine
from imgbuild.inputs.bootstrap import bootstrap_base
from imgbuild.inputs.download import show_progress
from imgbuild.matrix.load import load_matrix
from imgbuild.matrix.selection import find_image
from imgbuild.net.sites import Sites
from standin.__main__ import gateway
from standin.__main__ import open_context as open_standins
from standin.apt_repository import SigningKey, signing_key, write_suite
from standin.base_image import debian_base
from standin.deb import Package, write_deb
from standin.server import StandInServer, serve
from support.checkout import Checkout
from support.copied_checkout import (
    CONTENT,
    SHA256,
    change_settings,
    copied_checkout,
    debian_image,
    remove_images,
    substitute_cpython,
    tiny,
)

REPOSITORY = "imgbuild-snapshot/tensorflow"
NAME, TAG = "tf-1.10-cpu-debian", f"{REPOSITORY}:1.10-cpu"
BUILD = ("build", "--tf", "1.10", "--cpu", "--no-test")
EARLIER, LATER, NEVER = "20240501T000000Z", "20250501T000000Z", "19990101T000000Z"
VERSIONS = {EARLIER: "1.0", LATER: "2.0"}
_SUITES = {
    "debian": ("bookworm", "bookworm-updates"),
    "debian-security": ("bookworm-security",),
}
_TEMPLATE = """\
FROM scratch AS offline
FROM base AS os
COPY files/stand-in.gpg /etc/apt/trusted.gpg.d/stand-in.gpg
FROM os AS final
RUN --mount=type=secret,id=upstreams --mount=from=offline,target=/run/offline \\
    --mount=source=files/apt,target=/run/apt \\
    sh /run/apt/install said && : RUN_OF_TESTS
"""


@dataclass(frozen=True, kw_only=True)
class Dated(Checkout):
    """A checkout whose only step installs ``said``, and the service that has it by date."""

    key: SigningKey
    server: StandInServer
    base: Path

    def take(self, snapshot: str | None, path: str = "") -> None:
        """Set the mirror of Debian: a date of the service, or what it has at ``path``."""
        mirror = {"url": f"{self.server.url}/{path}", "keyring": str(self.key.keyring)}
        dated = {"snapshot": snapshot} if snapshot else {}
        base = {"debian-12": {"from": "layout", "path": str(self.base)}}
        change_settings(self.root, mirrors={"debian": mirror | dated}, base=base)
        self.server.asked.clear()

    def version(self) -> str:
        show = ("dpkg-query", "--show", "--showformat=${Version}", "said")
        return self.printed("run", "--rm", "--network=none", TAG, *show)


def _write_archives(www: Path, key: SigningKey) -> None:
    for date, version in VERSIONS.items():
        for archive, suites in _SUITES.items():
            root = www / "archive" / archive / date
            pool = root / "pool"
            pool.mkdir(parents=True)
            package = Package("said", version if archive == "debian" else "0.1", "a word")
            write_deb(package, pool / package.file_name)
            for suite in suites:
                expired = "Wed, 08 May 2024 00:00:00 UTC"
                write_suite(root, suite, ["main"], pool.glob("*.deb"), key, expired)
    for archive in _SUITES:  # the same, without a date: what a mirror is that nobody cares for
        link = www / "plain" / archive
        link.parent.mkdir(exist_ok=True)
        link.symlink_to(www / "archive" / archive / EARLIER)


@pytest.fixture(scope="module")
def dated(
    checkout: Checkout, engine: Engine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Dated]:
    folder = tmp_path_factory.mktemp("snapshot")
    context = open_standins(checkout.project)
    key = signing_key(context, "snapshot")
    _write_archives(folder / "www", key)
    root = folder / "checkout"
    # The engine's cache holds the step of earlier runs.
    template = _TEMPLATE.replace("RUN_OF_TESTS", uuid4().hex)
    files = tiny(template, nothing='"""Nothing."""\ndef test_nothing(): pass\n')
    copied_checkout(root, REPOSITORY, files=files, host=checkout.host)
    substitute_cpython(root, cache_dir().parent)
    (root / "images/files/stand-in.gpg").write_bytes(key.keyring.read_bytes())
    base = debian_base(context).layout
    assert base
    with serve(folder, gateway(context)) as server:
        made = Dated(root, folder / "state", checkout.host, key=key, server=server, base=base)
        made.render()
        yield made
    remove_images(engine, REPOSITORY)


@pytest.mark.parametrize("date", [EARLIER, LATER])
def test_packages_are_those_of_the_date(dated: Dated, engine: Engine, date: str) -> None:
    """The second is a build, too: the engine's cache holds the same step with another date."""
    dated.take(date)
    dated.run(*BUILD)
    assert dated.version() == VERSIONS[date]
    stored = engine.inspect(TAG)
    assert stored
    assert stored.labels["imgbuild.snapshot.debian"] == date
    assert f'"snapshot":"{date}"' in stored.labels["imgbuild.inputs"]
    asked = {"/".join(path.split("/")[1:4]) for path in dated.server.asked}
    assert asked == {f"archive/debian/{date}", f"archive/debian-security/{date}"}
    assert "debian.org" not in dated.log(), "the base's own archive"
    assert dated.plan("1.10")["action"] != "build"


@pytest.mark.parametrize(
    ("date", "path", "says"),
    [
        (None, "plain/debian", "is expired (invalid since"),  # a mirror that nobody cares for
        (NEVER, "", f"The snapshot of {NEVER} does not answer, or lacks these lists."),
    ],
)
def test_what_cannot_be_installed_is_named(
    dated: Dated, date: str | None, path: str, says: str
) -> None:
    dated.take(date, path)
    failed = dated.run(*BUILD, code=None)
    assert failed.returncode
    assert says in failed.stderr
    assert ("The snapshot of" in failed.stderr) is bool(date)


def test_what_is_fetched_is_of_the_date(
    dated: Dated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python packages, which the image does not install, are left out."""
    dated.take(EARLIER)
    monkeypatch.setattr("imgbuild.inputs.upstream_files.python_items", lambda *_: ())
    project = dated.project
    image = find_image(load_matrix(project.matrix), NAME)
    settings = project.settings
    sites = Sites(image.matrix.upstream_urls, settings)
    source = ContentStore(tmp_path).path(SHA256)
    source.parent.mkdir(parents=True)
    source.write_bytes(CONTENT)
    with open_context(project, (image,), BuildOptions(), print) as context, context.display:
        listing = plan_listing(image, sites, tmp_path, context)
        fetch_files([listing], sites, tmp_path, show_progress())
    assert any(path.endswith("/said_1.0_amd64.deb") for path in dated.server.asked)
    dated.server.asked.clear()
    dated.run(*BUILD, "--offline", str(tmp_path))
    assert dated.version() == VERSIONS[EARLIER]
    assert not dated.server.asked


@pytest.mark.nightly
def test_a_base_image_is_made_of_the_date(
    dated: Dated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service is asked, and refused: no archive of a stand-in is signed by Debian."""
    dated.take(EARLIER)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with pytest.raises(MachineError, match=f"the base of bookworm as of {EARLIER}"):
        bootstrap_base(debian_image(dated.root), dated.project.settings)
    lists = ("debian/{}/dists/bookworm", "debian-security/{}/dists/bookworm-security")
    asked = {f"/archive/{name.format(EARLIER)}/InRelease" for name in lists}
    assert asked <= dated.server.asked
