"""No code of a package runs while uv itself resolves, whatever packages and settings there are."""

import os
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from uv import find_uv_bin

from imgbuild.core.errors import CheckFailedError, InputError, MachineError
from imgbuild.core.files import file_sha256
from imgbuild.core.process import Finished
from imgbuild.core.sources import Source
from imgbuild.locks.resolver import (
    PackageMetadata,
    ReadMetadata,
    Target,
    call_uv,
    explain_refusal,
    file_digest,
    find_files,
    lock_packages,
    parse_metadata,
)
from support.fake_uv import no_metadata
from support.hostile_package import IN_TREE, HostileIndex

TARGET = Target("3.6.15", "x86_64-manylinux2014")
Known = Mapping[str, PackageMetadata]


@dataclass
class Resolving:
    """How uv is called, with a folder or pages for an index; ``asked`` are the sources read."""

    index: HostileIndex
    folder: Path
    environment: dict[str, str]
    asked: list[str] = field(default_factory=list)
    broken: set[str] = field(default_factory=set)

    def reader(self, known: Known) -> ReadMetadata:
        def read(name: str, version: str, source: Source, target: Target) -> PackageMetadata:
            assert target == TARGET
            assert source.sha256 == file_sha256(self.index.folder / source.name)
            pin = f"{name}=={version}"
            self.asked.append(pin)
            if pin in self.broken:
                raise CheckFailedError(f"{pin} is broken")
            return known.get(pin, PackageMetadata())

        return read

    def lock(
        self,
        *requires: str,
        constraints: str = "",
        known: Known | None = None,
        previous: str = "",
    ) -> set[str]:
        """Return the pins of a lock, each with a hash."""
        (self.folder / "requirements.in").write_text("\n".join(requires))
        (self.folder / "constraints.txt").write_text(constraints)
        options = ["--constraint", "constraints.txt", "requirements.in"]
        read = self.reader(known or {})
        where = (self.folder, self.environment, previous)
        text, result = lock_packages(options, TARGET, *where, read)
        if reason := explain_refusal(result, "the test"):
            raise InputError(reason)
        pins = re.findall(r"^(\S+) \\\n +--hash=sha256:[0-9a-f]{64}$", text, re.MULTILINE)
        assert len(pins) == text.count("==")
        return {*pins}


@pytest.fixture
def resolving(tmp_path: Path, request: pytest.FixtureRequest) -> Resolving:
    """Return how uv is called with a folder, or with the pages that `each_index` asks for."""
    (folder := tmp_path / "work").mkdir()
    (index := tmp_path / "index").mkdir()
    environment = {**os.environ, "UV_OFFLINE": "1", "XDG_CONFIG_HOME": str(tmp_path / "config")}
    made = Resolving(HostileIndex(index), folder, environment)
    publish_all(made.index)
    if getattr(request, "param", "folder") == "folder":
        environment["UV_FIND_LINKS"] = str(index)
    else:
        environment["UV_DEFAULT_INDEX"] = made.index.pages()
    return made


#: For what uv may do otherwise with each kind of index.
each_index = pytest.mark.parametrize("resolving", ["folder", "pages"], indirect=True)


def publish_all(index: HostileIndex) -> None:
    index.source("evil", "1.0")
    index.source("evil", "2.0")
    index.source("intree", "1.0", IN_TREE)
    index.wheel("app", "1.0", "evil<2")
    index.wheel("above", "1.0", "app")
    index.wheel("mixed", "1.0")
    index.source("mixed", "2.0")


@each_index
def test_the_index_of_this_test_runs_code(resolving: Resolving) -> None:
    """Uv alone builds the in-tree package, which no test below may do."""
    (resolving.folder / "requirements.in").write_text("intree")
    command = [find_uv_bin(), "pip", "compile", "requirements.in"]
    subprocess.run(
        command, cwd=resolving.folder, env=resolving.environment, check=False, capture_output=True
    )
    assert resolving.index.mark.exists()


@each_index
@pytest.mark.parametrize(
    ("requires", "constraints", "pins"),
    [
        (["evil"], "", {"evil==2.0"}),
        (["evil"], "evil<2", {"evil==1.0"}),
        (["evil[extra]==1.0"], "", {"evil==1.0"}),
        (["intree"], "", {"intree==1.0"}),
        (["above"], "", {"above==1.0", "app==1.0", "evil==1.0"}),
        (["mixed"], "", {"mixed==1.0"}),
        (["mixed>1", "intree"], "", {"mixed==2.0", "intree==1.0"}),
    ],
    ids=["sdist", "constraint", "extra", "in-tree", "indirect", "wheel first", "two"],
)
def test_no_code_runs(
    resolving: Resolving, requires: list[str], constraints: str, pins: set[str]
) -> None:
    assert resolving.lock(*requires, constraints=constraints) == pins
    assert not resolving.index.mark.exists()
    wheels = {"above==1.0", "app==1.0", "mixed==1.0"}
    assert {*resolving.asked} == pins - wheels, "each once"
    assert len(resolving.asked) == len({*resolving.asked})


@each_index
def test_a_release_without_usable_metadata_is_passed_over(
    resolving: Resolving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If no other one will do, its fault is said; of many such releases only some are tried."""
    resolving.broken = {"evil==2.0"}
    assert resolving.lock("evil") == {"evil==1.0"}
    assert resolving.asked == ["evil==2.0", "evil==1.0"]
    with pytest.raises(CheckFailedError, match=r"evil==2\.0 is broken"):
        resolving.lock("evil>1")
    monkeypatch.setattr("imgbuild.locks.resolver.MOST_FAULTS", 2)
    for version in ("3", "4"):
        resolving.index.source("evil", version)
        resolving.broken |= {f"evil=={version}"}
    if "UV_DEFAULT_INDEX" in resolving.environment:
        resolving.environment["UV_DEFAULT_INDEX"] = resolving.index.pages()
    resolving.asked.clear()
    with pytest.raises(CheckFailedError, match="evil==4 is broken"):
        resolving.lock("evil")
    assert resolving.asked == ["evil==4", "evil==3", "evil==2.0"]


@each_index
def test_metadata_decides_what_else_is_locked(resolving: Resolving) -> None:
    """A release that cannot be is put aside, as uv does with any other."""
    known = {
        "evil==2.0": PackageMetadata(("mixed>3",)),
        "evil==1.0": PackageMetadata(("mixed", 'intree; python_version > "3.9"')),
    }
    assert resolving.lock("evil", known=known) == {"evil==1.0", "mixed==1.0"}
    assert resolving.asked == ["evil==2.0", "evil==1.0"]
    newer = {"evil==2.0": PackageMetadata(python=">=3.9")}
    assert resolving.lock("evil", known=newer) == {"evil==1.0"}
    assert not resolving.index.mark.exists()


@each_index
def test_a_wheel_is_used_beside_a_source(resolving: Resolving) -> None:
    """Uv names mixed as one without a wheel, for it has none in the newest release."""
    resolving.index.wheel("old", "1.0", "mixed<2", "evil")
    if "UV_DEFAULT_INDEX" in resolving.environment:
        resolving.environment["UV_FIND_LINKS"] = str(resolving.index.folder)
    pins = resolving.lock("old")
    assert pins == {"old==1.0", "mixed==1.0", "evil==2.0"}


def test_a_wheel_is_used_where_its_source_fails(resolving: Resolving) -> None:
    """The newest release of mixed has no wheel and cannot be; the older one has one."""
    resolving.index.wheel("needs", "2.0", "mixed>=2")
    resolving.index.wheel("needs", "1.0", "mixed<2", "evil")
    resolving.environment["UV_FIND_LINKS"] = str(resolving.index.folder)
    known = {"mixed==2.0": PackageMetadata(("evil>7",))}
    pins = resolving.lock("needs", known=known)
    assert pins == {"needs==1.0", "mixed==1.0", "evil==2.0"}


def test_a_wheel_wins_over_a_newer_source(resolving: Resolving) -> None:
    """Uv names both as packages that need a wheel."""
    resolving.index.wheel("mixed", "1.0", "needs==1.0")
    resolving.index.source("needs", "1.0")
    resolving.environment["UV_FIND_LINKS"] = str(resolving.index.folder)
    assert resolving.lock("mixed", "evil") == {"mixed==1.0", "needs==1.0", "evil==2.0"}


def test_a_large_native_package_is_never_compiled(resolving: Resolving) -> None:
    resolving.index.source("scipy", "1.0")
    resolving.environment["UV_FIND_LINKS"] = str(resolving.index.folder)
    with pytest.raises(InputError, match=r"scipy==1\.0 has no usable wheels"):
        resolving.lock("scipy")
    assert resolving.asked == []


@each_index
def test_versions_of_the_previous_lock_are_kept(resolving: Resolving) -> None:
    assert resolving.lock("evil", previous="evil==1.0\n") == {"evil==1.0"}


@each_index
def test_what_cannot_be_is_refused(resolving: Resolving) -> None:
    with pytest.raises(InputError, match=r"evil==3"):
        resolving.lock("evil==3")
    assert not resolving.index.mark.exists()


@pytest.mark.parametrize(
    "variable", ["UV_NO_BINARY", "UV_NO_BINARY_PACKAGE", "UV_NO_BUILD_PACKAGE"]
)
def test_variables_allow_no_build(resolving: Resolving, variable: str) -> None:
    resolving.environment[variable] = "intree"
    assert resolving.lock("intree") == {"intree==1.0"}
    assert not resolving.index.mark.exists()


@pytest.mark.parametrize("place", ["user", "variable"])
@pytest.mark.parametrize(
    "text", ["no-binary-package = ['intree']\n", "[pip]\nno-binary = ['intree']\n"]
)
def test_settings_allow_no_build(resolving: Resolving, place: str, text: str) -> None:
    path = Path(resolving.environment["XDG_CONFIG_HOME"], "uv", "uv.toml")
    path.parent.mkdir(parents=True)
    path.write_text(text)
    if place == "variable":
        moved = path.rename(path.with_name("own.toml"))
        resolving.environment["UV_CONFIG_FILE"] = str(moved)
    with pytest.raises(InputError, match="no-binary for intree"):
        resolving.lock("intree")
    assert not resolving.index.mark.exists()


def test_settings_still_name_the_index(resolving: Resolving) -> None:
    """Also with metadata of our own beside them, and in one file that excludes the others."""
    links = resolving.environment.pop("UV_FIND_LINKS")
    path = Path(resolving.environment["XDG_CONFIG_HOME"], "uv", "uv.toml")
    path.parent.mkdir(parents=True)
    path.write_text(f"find-links = [{links!r}]\n")
    assert resolving.lock("evil") == {"evil==2.0"}
    own = path.rename(path.with_name("own.toml"))
    resolving.environment["UV_CONFIG_FILE"] = str(own)
    assert resolving.lock("evil") == {"evil==2.0"}
    del resolving.environment["UV_CONFIG_FILE"]
    resolving.environment |= {"UV_NO_CONFIG": "1", "UV_FIND_LINKS": links}
    assert resolving.lock("evil") == {"evil==2.0"}
    assert not resolving.index.mark.exists()


@each_index
def test_files_are_found_without_a_build(resolving: Resolving) -> None:
    pins = {"app": "1.0", "evil": "1.0", "intree": "1.0", "mixed": "2.0"}
    where = (resolving.folder, resolving.environment)
    found = find_files("the test", pins, TARGET, *where)
    assert {str(one.name) for one in found.packages if one.sdist} == {"evil", "intree", "mixed"}
    assert not resolving.index.mark.exists()
    with pytest.raises(MachineError, match=r"files of the test: .*no version of"):
        find_files("the test", {"evil": "7"}, TARGET, *where)


@pytest.mark.parametrize("hashes", [{}, {"sha256": "0" * 64}])
def test_a_file_has_the_name_that_an_index_says(tmp_path: Path, hashes: dict[str, str]) -> None:
    """An index of the network can name any file of this machine."""
    (private := tmp_path / "private").write_text("secret")
    (source := tmp_path / "a b-1.0.tar.gz").write_text("source")
    with pytest.raises(MachineError, match=r"a-1\.0\.tar\.gz to .*private"):
        file_digest("a-1.0.tar.gz", private.as_uri(), hashes)
    assert file_digest("a b-1.0.tar.gz", source.as_uri(), {}) == file_sha256(source)


def test_uv_with_other_settings_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "uv"
    script.write_text(f'#!/bin/sh\ncase "$*" in *--show*) ;; *) touch {tmp_path}/ran;; esac\n')
    script.chmod(0o755)
    monkeypatch.setattr("uv.find_uv_bin", lambda: str(script))
    with pytest.raises(MachineError, match="cannot read the settings that uv prints"):
        call_uv(["x.in"], tmp_path, os.environ)
    assert not (tmp_path / "ran").exists()


def test_metadata_without_end(resolving: Resolving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("imgbuild.locks.resolver.ROUNDS", 2)
    with pytest.raises(CheckFailedError, match=r"After 2 .*: evil, intree"):
        resolving.lock("evil", "intree")
    assert not resolving.index.mark.exists()


SAID = "Metadata-Version: 2.1\nName: Evil\nVersion: 1.0\n"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "name is invalid"),
        (SAID.replace("Evil", "other"), "of other 1.0"),
        (SAID.replace("1.0", "2.0"), "of evil 2.0"),
        (SAID + "Requires-Dist: x @ file:///x.tar.gz\n", "satisfied from a package index"),
        (SAID + "Requires-Dist: x; os_name == 'é'\n", "satisfied from a package index"),
        (SAID + "Requires-Dist: -e .\n", "not a valid requirement"),
        (SAID + f"Requires-Dist: x; {'(' * 900}os_name=='a'{')' * 900}\n", "nested too deeply"),
        (SAID + f"Requires-Dist: x>={'1' * 5000}\n", "digits"),
        (SAID + "Requires-Python: soon\n", "soon"),
        (SAID + "Provides-Extra: a b\n", "a b"),
    ],
    ids=[
        "empty",
        "name",
        "version",
        "address",
        "letters",
        "option",
        "nested",
        "digits",
        "python",
        "extra",
    ],
)
def test_metadata_that_is_none_is_refused(text: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        parse_metadata(text, "evil", "1.0")


def test_metadata_of_a_release_is_read() -> None:
    text = SAID + "Requires-Python: >=3.6\nProvides-Extra: Full\nRequires-Dist: x>=1\n\nText\n"
    read: Callable[[str], PackageMetadata] = lambda one: parse_metadata(one, "evil", "1")  # noqa: E731
    assert read(text) == PackageMetadata(("x>=1",), ">=3.6", ("full",))


@each_index
def test_a_lock_without_sources_reads_no_metadata(resolving: Resolving) -> None:
    (resolving.folder / "requirements.in").write_text("mixed")
    where = (resolving.folder, resolving.environment)
    text, result = lock_packages(["requirements.in"], TARGET, *where, "", no_metadata)
    assert (result.ok, text.startswith("mixed==1.0")) == (True, True)


def test_file_digest_is_the_index_s(tmp_path: Path) -> None:
    """A folder has no digests, so its file is read; an index without one is refused."""
    (file := tmp_path / "a.whl").write_bytes(b"wheel")
    url = "https://index.example/a.whl"
    assert file_digest("a.whl", url, {"sha256": "1" * 64}) == "1" * 64
    assert file_digest("a.whl", file.as_uri(), {}) == file_sha256(file)
    for name, place in (
        ("a.whl", url),
        ("gone.whl", (tmp_path / "gone.whl").as_uri()),
        ("b.whl", file.as_uri()),
    ):
        with pytest.raises(MachineError):
            file_digest(name, place, {})


def test_a_network_that_replaces_certificates_is_named() -> None:
    said = (
        "error: Failed to fetch: `https://index.example.org/simple/x/`\n  Caused by: invalid peer "
        "certificate: UnknownIssuer\nhint: Consider enabling use of system TLS certificates with "
        "the `--system-certs` command-line flag"
    )
    with pytest.raises(MachineError, match=r"doctor --write") as caught:
        explain_refusal(Finished(2, errors=said), "the additions")
    assert "--system-certs" not in str(caught.value)
