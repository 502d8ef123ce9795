"""Metadata of source distributions: what a container is given, what is believed of its answer."""

import bz2
import gzip
import io
import json
import lzma
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from imgbuild.build import metadata_program
from imgbuild.build.source_metadata import BuildSystem, MetadataReader, read_build_system
from imgbuild.core.errors import CheckFailedError, MachineError
from imgbuild.core.files import file_sha256
from imgbuild.core.project import Project
from imgbuild.core.sources import Source
from imgbuild.engine.build import BuildTarget
from imgbuild.engine.types import StoredImage
from imgbuild.locks.lockfile import Lock
from imgbuild.locks.resolver import PackageMetadata, Target
from imgbuild.matrix.model import Matrix
from imgbuild.net.sites import Sites
from support.bombs import memory_below
from support.fake_engine import FakeEngine
from support.hostile_package import IN_TREE, HostileIndex

BASE, OTHER = f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"
TARGET = Target("3.6.15", "x86_64-manylinux2014")
SAID = "Metadata-Version: 2.1\nName: evil\nVersion: 1.0\nRequires-Dist: app>=1\n"


@dataclass
class Container:
    """What a container answers, by file, and what it was given."""

    index: HostileIndex
    reader: MetadataReader
    engine: FakeEngine
    #: The ids of the images whose Python was used.
    pythons: list[str] = field(default_factory=list)
    answers: list[dict[str, str]] = field(default_factory=list)
    targets: list[BuildTarget] = field(default_factory=list)
    dockerfiles: list[str] = field(default_factory=list)
    sent: list[dict[str, Any]] = field(default_factory=list)
    tools: list[set[str]] = field(default_factory=list)

    def export(self, target: BuildTarget, folder: Path, _: object) -> None:
        self.targets.append(target)
        python = self.engine.inspect(target.contexts["python"].removeprefix("docker-image://"))
        self.pythons.append(python.id if python else "")
        self.dockerfiles.append(target.dockerfile.read_text())
        self.sent.append(json.loads((target.context / "settings.json").read_text()))
        assert {path.name for path in target.context.iterdir()} == {
            "program.py",
            "settings.json",
            "source",
        }
        self.tools.append({path.name for path in Path(target.contexts["tools"]).iterdir()})
        folder.mkdir()
        for name, text in self.answers.pop(0).items():
            (folder / name).write_text(text)

    def read(self, pyproject: str = "") -> PackageMetadata:
        path = self.index.folder / "evil-1.0.tar.gz"
        if not path.exists():
            self.index.source("evil", "1.0", pyproject)
        source = Source(path.name, path.as_uri(), file_sha256(path))
        return self.reader.read("evil", "1.0", source, TARGET)


@pytest.fixture(scope="module")
def uv_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a cache that knows this Python, which uv would start for each test to ask it."""
    return tmp_path_factory.mktemp("uv")


@pytest.fixture
def container(
    tmp_path: Path, uv_cache: Path, matrix: Matrix, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Container]:
    (index := HostileIndex(tmp_path / "index")).folder.mkdir()
    locks = tmp_path / "project" / "images" / "locks"
    locks.mkdir(parents=True)
    entries = (
        f"{path.name.split('-')[0]}==1.0 \\\n    --hash=sha256:{file_sha256(path)}\n"
        for path in (index.wheel("setuptools", "1.0"), index.wheel("wheel", "1.0"))
    )
    text = f"# request: sha256:{'0' * 64}\n{''.join(entries)}"
    (locks / "build-py3.6.txt").write_text(text)
    index.wheel("setuptools", "2.0")
    index.wheel("extra", "1.0")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_FIND_LINKS", str(index.folder))
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(uv_cache))

    engine = FakeEngine([StoredImage(BASE, ("me/base:1", "me/other:1"))])

    @contextmanager
    def opened(*_: object) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(engine=engine, state=tmp_path / "state")

    monkeypatch.setattr("imgbuild.build.source_metadata.open_context", opened)
    project = Project(tmp_path / "project")
    with MetadataReader(project, matrix, Sites(), lambda _: None, BASE) as reader:
        made = Container(index, reader, engine)
        monkeypatch.setattr("imgbuild.build.source_metadata.export_stage", made.export)
        yield made
    assert not index.mark.exists()


def test_metadata_is_made_once(container: Container) -> None:
    container.answers = [{"METADATA": SAID, "requires.json": '["wheel"]'}]
    found = container.read()
    assert found == PackageMetadata(("app>=1",), build_requires=("setuptools", "wheel"))
    assert container.read() == found, "from the cache, by the file's sha256"
    assert len(container.targets) == 1
    other = Source("evil-1.0.tar.gz", "file:///none", "0" * 64)
    with pytest.raises(MachineError, match=r"evil-1\.0\.tar\.gz cannot be copied"):
        container.reader.read("evil", "1.0", other, TARGET)


def test_requirements_are_those_of_wheels_and_sources(container: Container) -> None:
    wheel = container.index.wheel("app", "1.0", "lib<2", "six; python_version < '3'")
    source = container.index.source("evil", "1.0")
    files = {"app": wheel, "evil": source}
    hashes = {name: (file_sha256(path),) for name, path in files.items()}
    lock = Lock("", dict.fromkeys(files, "1.0"), hashes)
    container.answers = [{"METADATA": SAID, "requires.json": "[]"}]
    assert container.reader.requirements(lock, "x.txt", TARGET) == {
        "app": ("lib<2", 'six; python_version < "3"'),
        "evil": ("app>=1",),
    }


def test_an_image_speaks_for_itself_alone(container: Container) -> None:
    """The Python of anybody's image can say anything of a package."""
    container.engine.stored[OTHER] = StoredImage(OTHER)
    lie = f"{SAID}Requires-Dist: worse\n"
    container.answers = [{"METADATA": lie}, {"METADATA": SAID}]
    assert container.read().requires == ("app>=1", "worse")
    container.reader.image_id = OTHER
    assert container.read().requires == ("app>=1",)
    assert container.pythons == [BASE, OTHER]


def test_the_base_is_used_by_its_id(container: Container) -> None:
    container.answers = [{"METADATA": SAID}]
    container.engine.stored[OTHER] = StoredImage(OTHER)
    container.engine.tag(OTHER, "me/base:1")
    container.read()
    assert container.pythons == [BASE], "whatever its name means by then"
    assert container.engine.stored[BASE].tags == ("me/other:1",)


def test_another_python_has_other_metadata(
    container: Container, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an image that is asked, the Python of the family tells them apart."""
    reader = container.reader
    monkeypatch.setattr(reader, "image_id", "")
    monkeypatch.setattr(
        reader, "_make", lambda _, __, ___, target: PackageMetadata((target.minor,))
    )
    source = Source("evil-1.0.tar.gz", "file:///none", "0" * 64)
    targets = (TARGET, Target("3.8.18", TARGET.platform))
    assert [reader.read("evil", "1.0", source, target).requires for target in targets] == [
        ("3.6",),
        ("3.8",),
    ]


def test_a_source_has_its_sha256(container: Container) -> None:
    path = container.index.source("evil", "1.0")
    source = Source(path.name, path.as_uri(), "0" * 64)
    with pytest.raises(CheckFailedError, match="does not have the expected sha256"):
        container.reader.read("evil", "1.0", source, TARGET)
    assert container.targets == []


def test_code_of_a_package_sees_nothing(container: Container) -> None:
    """Each step is without network; no secret is given, and no folder of the user."""
    container.answers = [{"METADATA": SAID}]
    container.read()
    (target,), (dockerfile,) = container.targets, container.dockerfiles
    assert (target.secrets, target.args, {*target.contexts}) == ({}, {}, {"python", "tools"})
    steps = [line for line in dockerfile.splitlines() if line.startswith("RUN")]
    assert [line.startswith("RUN --network=none ") for line in steps] == [True] * 3
    code = dockerfile.index('"make"')
    assert dockerfile.rindex("USER 65534:65534", 0, code) > dockerfile.rindex("USER 0", 0, code)
    assert container.tools == [{"setuptools-1.0-py3-none-any.whl", "wheel-1.0-py3-none-any.whl"}]


def test_a_backend_gets_what_it_requires(container: Container) -> None:
    pyproject = IN_TREE.replace("[]", "['setuptools']")
    more = {"requires.json": '["extra>=1", "setuptools>=0"]', "error.txt": "no module"}
    container.answers = [more, {"METADATA": SAID, "requires.json": '["extra>=1"]'}]
    assert container.read(pyproject).build_requires == ("setuptools", "extra>=1")
    first, second = container.tools
    assert second - first == {"extra-1.0-py3-none-any.whl"}
    assert container.sent[0]["backend"] == "backend"
    assert container.sent[0]["path"] == ["."]


def test_a_backend_may_require_nothing(container: Container) -> None:
    container.answers = [{"METADATA": SAID}]
    assert container.read(IN_TREE).build_requires == ()
    assert container.tools == [set()]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ({"error.txt": "its build backend failed: no mpicc"}, "no mpicc"),
        ({}, "made no metadata"),
        ({"METADATA": SAID.replace("evil", "tensorflow")}, "of tensorflow 1.0"),
        ({"METADATA": SAID + "Requires-Dist: x @ file:///x\n"}, "satisfied from a package index"),
        (
            {"METADATA": SAID + "x" * (1 << 20)},
            "larger than 1048576 bytes, the limit for this file\\. ",
        ),
        ({"METADATA": SAID, "requires.json": "{"}, "evil 1.0"),
        ({"METADATA": SAID, "requires.json": '["x @ file:///x"]'}, "from a package index"),
    ],
    ids=["error", "nothing", "name", "address", "size", "json", "requirement"],
)
def test_an_answer_that_is_none_is_refused(
    container: Container, answer: dict[str, str], says: str
) -> None:
    container.answers = [answer]
    with pytest.raises(CheckFailedError, match=rf"evil 1\.0, evil-1\.0.*{says}|{says}"):
        container.read()
    container.answers = [{"METADATA": SAID}]
    assert container.read().requires == ("app>=1",), "nothing of it was kept"


def test_an_exported_link_is_not_followed(
    container: Container, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "private").write_text(SAID)

    def export(_: BuildTarget, folder: Path, __: object) -> None:
        folder.mkdir()
        (folder / "METADATA").symlink_to(tmp_path / "private")

    monkeypatch.setattr("imgbuild.build.source_metadata.export_stage", export)
    with pytest.raises(CheckFailedError, match="made no metadata"):
        container.read()


@pytest.mark.parametrize(
    ("requires", "says"),
    [
        ("['setuptools>=2']", r"locked build tools \(setuptools 1\.0, wheel 1\.0\)"),
        ("['evil']", "is built with evil 1.0, which has no wheel"),
        ("['x @ file:///x']", "satisfied from a package index"),
        ("7", "cannot be used"),
    ],
)
def test_tools_that_are_not_locked_wheels(container: Container, requires: str, says: str) -> None:
    with pytest.raises(CheckFailedError, match=says):
        container.read(IN_TREE.replace("[]", requires))
    assert container.targets == []


def test_locked_tools_have_the_locked_hash(container: Container) -> None:
    wheel = container.index.folder / "wheel-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("wheel.py", "evil")
    with pytest.raises(CheckFailedError, match=r"has wheel-1\.0-py3-none-any\.whl with"):
        container.read()
    assert container.targets == []


def test_without_an_engine_the_package_is_named(
    container: Container, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise MachineError("No engine answers.")

    monkeypatch.setattr("imgbuild.build.source_metadata.open_context", refuse)
    with pytest.raises(MachineError, match=r"evil 1\.0 has no wheel.*No engine answers"):
        container.read()


def test_a_python_of_no_image_is_named(container: Container) -> None:
    """Without an image of the engine there is nothing to make the metadata in."""
    source = Source("evil-1.0.tar.gz", "file:///nowhere", "0" * 64)
    container.reader.image_id = ""
    with pytest.raises(MachineError, match=r"evil 1\.0 has no wheel.*Python 2\.7"):
        container.reader.read("evil", "1.0", source, replace(TARGET, python="2.7.18"))


def archive_of(path: Path, files: dict[str, str]) -> Path:
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as zipped:
            for name, text in files.items():
                zipped.writestr(name, text)
        return path
    with tarfile.open(path, "w:gz") as tar:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    return path


LEGACY = BuildSystem()


@pytest.mark.parametrize("ending", ["tar.gz", "zip"])
@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"a-1/setup.py": ""}, LEGACY),
        ({"a-1/b/pyproject.toml": "x", "pyproject.toml": "x"}, LEGACY),
        ({"a-1/pyproject.toml": "[project]\n"}, LEGACY),
        ({"a-1/pyproject.toml": IN_TREE}, BuildSystem((), "backend", (".",))),
        (
            {"./a-1/pyproject.toml": "[build-system]\nrequires = ['setuptools>=40']\n"},
            BuildSystem(("setuptools>=40", "wheel")),
        ),
    ],
)
def test_the_build_system_is_read_as_data(
    tmp_path: Path, ending: str, files: dict[str, str], expected: BuildSystem
) -> None:
    assert read_build_system(archive_of(tmp_path / f"a.{ending}", files)) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("[", "build-system = 7", "[build-system]\nrequires = [7]", "x = " + "[" * 5000),
        "#" * 2000000,
        f"[build-system]\nrequires = [\"x; {'(' * 900}os_name=='a'{')' * 900}\"]",
    ],
    ids=["text", "table", "list", "nested", "large", "marker"],
)
def test_a_build_system_that_is_none(tmp_path: Path, text: str) -> None:
    archive = archive_of(tmp_path / "a.tar.gz", {"a-1/pyproject.toml": text})
    with pytest.raises(ValueError, match=r"\S"):
        read_build_system(archive)


@pytest.mark.parametrize("damage", [lambda _: b"", lambda one: one[:99], lambda one: b"PK" + one])
def test_a_damaged_archive(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    path = archive_of(tmp_path / "a.tar.gz", {"a-1/x": "x" * 100_000})
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match="cannot be read"):
        read_build_system(path)


def test_an_archive_that_unpacks_to_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("imgbuild.build.source_metadata.MOST_BYTES", 1000)
    archive = archive_of(tmp_path / "a.tar.gz", {"a-1/x": "x" * 2000})
    with pytest.raises(ValueError, match="too large when unpacked"):
        read_build_system(archive)


@pytest.mark.parametrize("packing", ["bz2", "xz"])
def test_source_is_unpacked_in_small_pieces(tmp_path: Path, packing: str) -> None:
    """A piece of bzip2 or LZMA of a few kB unpacks to gigabytes at once."""
    path = tmp_path / f"a.tar.{packing}"
    pack = bz2.compress if packing == "bz2" else lzma.compress
    path.write_bytes(pack(tarfile.TarInfo("a-1/pyproject.toml").tobuf() + bytes(1024)))
    with pytest.raises(ValueError, match="cannot be read"):
        read_build_system(path)
    zipped = tmp_path / "a.zip"
    method = zipfile.ZIP_BZIP2 if packing == "bz2" else zipfile.ZIP_LZMA
    with zipfile.ZipFile(zipped, "w", method) as archive:
        archive.writestr("a-1/pyproject.toml", "")
    with pytest.raises(ValueError, match="another method"):
        read_build_system(zipped)


def large_headers(count: int) -> bytes:
    """Return the files of a tar archive, each with a header of a MB."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for number in range(count):
            entry = tarfile.TarInfo(f"a-1/{number}")
            entry.pax_headers = {"comment": "a" * 1_000_000}
            tar.addfile(entry)
    return buffer.getvalue()


def test_headers_of_source_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are kept no longer than their file is read."""
    path = tmp_path / "a.tar.gz"
    path.write_bytes(gzip.compress(large_headers(60)))
    with memory_below(48 << 20):
        assert read_build_system(path) == LEGACY
    monkeypatch.setattr("imgbuild.build.source_metadata.MOST_BYTES", 10 << 20)
    with pytest.raises(ValueError, match="too large when unpacked"):
        read_build_system(path)


def test_source_with_a_large_header_is_refused(tmp_path: Path) -> None:
    """Tarfile would read an extended header whole."""
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 1 << 40
    path = tmp_path / "a.tar.gz"
    path.write_bytes(gzip.compress(header.tobuf(tarfile.GNU_FORMAT) + bytes(1024)))
    with pytest.raises(ValueError, match="cannot be read"):
        read_build_system(path)


def test_the_program_collects_only_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root collects what a package's code has left: a link may lead to what it cannot read."""
    for name in ("WORK", "RESULT"):
        (tmp_path / name).mkdir()
        monkeypatch.setattr(metadata_program, name, tmp_path / name)
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "WORK" / "METADATA").symlink_to(tmp_path / "secret")
    (tmp_path / "WORK" / "requires.json").mkdir()
    with (tmp_path / "WORK" / "error.txt").open("wb") as file:
        file.truncate(metadata_program.LARGEST_RESULT + 1)
    metadata_program.collect()
    assert [*(tmp_path / "RESULT").iterdir()] == []
    (tmp_path / "WORK" / "error.txt").write_text("why")
    metadata_program.collect()
    assert (tmp_path / "RESULT" / "error.txt").read_text() == "why"


#: Where the code of a package may write.
AT_HOME = "import os, sys; os.chdir(os.environ['HOME']);"


@pytest.mark.parametrize(
    "code",
    [
        "os.unlink('output.txt') if os.path.exists('output.txt') else 0; os.mkfifo('output.txt')",
        "os.mkfifo('error.txt')",
        "os.symlink('../secret', 'error.txt')",
    ],
)
def test_the_program_ends_whatever_code_has_left(tmp_path: Path, code: str) -> None:
    """The package's code runs as the same user, and may replace every file of the folder."""
    (work := tmp_path / "work").mkdir()
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "call.py").write_text(f"{AT_HOME} {code}; sys.exit('it fails')")
    (tmp_path / "settings.json").write_text('{"seconds": 20}')
    program = f"""
from pathlib import Path
from imgbuild.build import metadata_program as program
program.HERE, program.WORK = Path({str(tmp_path)!r}), Path({str(work)!r})
program.__file__ = {str(tmp_path / "call.py")!r}
program.make()
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)
    assert not (work / "error.txt").is_symlink()
    assert (work / "error.txt").read_text() == "its build backend failed: it fails"
    assert (tmp_path / "secret").read_text() == "secret"
