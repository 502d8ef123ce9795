"""Packages as of a day, resolved by uv itself from an index on loopback with upload times."""

import json
import os
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from imgbuild.adopt import resolve
from imgbuild.adopt.packages import PackageRequest
from imgbuild.adopt.resolve import Resolution, find_missing_modules, resolve_as_of
from imgbuild.core.errors import CheckFailedError, InputError, MachineError
from imgbuild.core.files import file_sha256
from imgbuild.core.sources import Source
from imgbuild.extend.additions import UnfitError, lock_additions, write_empty_wheel
from imgbuild.extend.base_image import BaseImage
from imgbuild.locks.lockfile import Lock
from imgbuild.locks.resolver import PackageMetadata, Target, wheel_metadata
from support.fake_uv import no_metadata
from support.faulty_server import FaultyServer, Reply, serving
from support.hostile_package import HostileIndex

DAY = date(2019, 6, 30)
PACKAGES = {"numpy": "1.18.5", "six": "1.17.0"}
BASE = BaseImage("me/base:1", "me/base:1", "3.6.15", "2.36", "debian-12", PACKAGES, PACKAGES)
#: A base with a package of the index, which Horovod alone needs, in any version.
WITH_HOROVOD = replace(
    BASE, packages={**PACKAGES, "cloudpickle": "2.2.1"}, bounds={"cloudpickle": ""}
)


@dataclass
class Index:
    """An index of wheels with upload times, on loopback; ``folder`` is the user's."""

    folder: Path
    server: FaultyServer
    has_times: bool = True
    files: dict[str, list[dict[str, object]]] = field(default_factory=dict)
    sources: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def publish(self, name: str, version: str, *requires: str, day: str = "2019-01-01") -> None:
        """Put a wheel onto the index."""
        write_empty_wheel(self.folder, name, version, requires)
        self._offer(name, self.folder / f"{name.replace('-', '_')}-{version}-py3-none-any.whl", day)

    def publish_source(
        self, name: str, version: str, *requires: str, day: str = "2019-01-01"
    ) -> None:
        """Put a source distribution onto the index."""
        (self.folder / "sources").mkdir(exist_ok=True)
        self._offer(name, HostileIndex(self.folder / "sources").source(name, version), day)
        self.sources[f"{name} {version}"] = requires

    def _offer(self, name: str, path: Path, day: str) -> None:
        file: dict[str, object] = {
            "filename": path.name,
            "url": self.server.give(f"/files/{path.name}", Reply(path.read_bytes())),
            "hashes": {"sha256": file_sha256(path)},
        }
        if path.suffix == ".whl":
            file["core-metadata"] = True
            metadata = wheel_metadata(path).encode()
            self.server.give(f"/files/{path.name}.metadata", Reply(metadata))
        if self.has_times:
            file["upload-time"] = f"{day}T12:00:00Z"
        files = self.files.setdefault(name, [])
        files.append(file)
        meta = {"api-version": "1.1"}
        page = json.dumps({"meta": meta, "name": canonicalize_name(name), "files": files})
        kind = "application/vnd.pypi.simple.v1+json"
        self.server.give(f"/simple/{canonicalize_name(name)}/", Reply(page.encode(), kind=kind))

    def read_metadata(self, name: str, version: str, _: Source, __: Target) -> PackageMetadata:
        if f"{name} {version}" not in self.sources:
            raise CheckFailedError(f"The source distribution of {name} {version} cannot be used.")
        return PackageMetadata(self.sources[f"{name} {version}"])

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "UV_DEFAULT_INDEX": f"{self.server.url}/simple",
            "UV_CACHE_DIR": str(self.folder / "cache"),
            "UV_HTTP_RETRIES": "0",
        }

    @property
    def path(self) -> Path:
        return self.folder / "adopt.lock.txt"

    def resolve(  # noqa: PLR0913 - the request
        self,
        *requirements: str,
        day: date | None = DAY,
        base: BaseImage = BASE,
        optional: tuple[str, ...] = (),
        constraints: tuple[str, ...] = (),
        overrides: tuple[str, ...] = (),
        wheels_only: tuple[str, ...] = (),
    ) -> Resolution:
        request = PackageRequest(
            requirements,
            optional=optional,
            constraints=constraints,
            overrides=overrides,
            wheels_only=wheels_only,
        )
        return resolve_as_of(
            request,
            base,
            day,
            self.path,
            environment=self.environment,
            read_metadata=self.read_metadata,
        )


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    with serving(FaultyServer()) as server:
        yield Index(tmp_path, server)


def versions(resolution: Resolution) -> dict[str, str]:
    assert resolution.lock
    return dict(resolution.lock.versions)


def test_resolve_uses_the_releases_of_the_day(index: Index) -> None:
    index.publish("app", "1.0", "six", "helper")
    index.publish("app", "2.0", day="2019-07-01")
    index.publish("helper", "1.0", day="2019-06-30")
    index.publish("helper", "2.0", day="2020-01-01")
    resolution = index.resolve("app")
    assert versions(resolution) == {"app": "1.0", "helper": "1.0"}
    assert resolution.rung.endswith("as of 2019-06-30")
    assert resolution.left_out == ()
    index.path.unlink()
    assert versions(index.resolve("app", day=None))["app"] == "2.0"


def test_resolve_reuses_its_lock(index: Index) -> None:
    index.publish("app", "1.0")
    first = index.resolve("app==1.0")
    text = index.path.read_bytes()
    index.server.replies.clear()
    again = index.resolve("app==1.0")
    assert (again.lock, index.path.read_bytes()) == (first.lock, text)
    later = index.resolve(day=date(2019, 7, 1))
    assert later.lock is None


def test_resolve_exempts_pinned_versions(index: Index) -> None:
    index.publish("app", "1.0")
    index.publish("app", "1.1", day="2021-01-01")
    resolution = index.resolve("app==1.1")
    assert versions(resolution) == {"app": "1.1"}
    assert "as of" in resolution.rung


def test_resolve_takes_newer_packages_for_pins(index: Index) -> None:
    index.publish("app", "1.0", "helper>=2", "other")
    index.publish("helper", "1.0")
    index.publish("helper", "2.0", day="2020-01-01")
    index.publish("other", "1.0")
    index.publish("other", "2.0", day="2020-01-01")
    resolution = index.resolve("app==1.0")
    assert versions(resolution) == {"app": "1.0", "helper": "2.0", "other": "1.0"}
    assert resolution.notes == ("helper may be newer than the code",)


def test_resolve_drops_only_rejected_pins(index: Index) -> None:
    index.publish("app", "1.0")
    index.publish("app", "1.1", day="2021-01-01")
    index.publish("tool", "1.0")
    index.publish("tool", "2.0")
    resolution = index.resolve("app==9.9", "tool==1.0")
    assert versions(resolution) == {"app": "1.0", "tool": "1.0"}


def test_resolve_falls_back_to_newer_releases(index: Index) -> None:
    """Only the package without a release of the day is newer."""
    index.publish("app", "1.0", day="2021-01-01")
    index.publish("tool", "1.0")
    index.publish("tool", "1.1", day="2021-01-01")
    index.publish("bounded", "1.0")
    index.publish("bounded", "2.0", day="2021-01-01")
    resolution = index.resolve("app", "tool", "bounded>=2")
    assert versions(resolution) == {"app": "1.0", "tool": "1.0", "bounded": "2.0"}


def test_resolve_keeps_pins_that_fit(index: Index) -> None:
    """If uv names two pins, only one of them has to go."""
    index.publish("app", "1.0", "tool>=2")
    index.publish("app", "0.9", "tool")
    index.publish("tool", "1.0")
    index.publish("tool", "2.0")
    resolution = index.resolve("app==1.0", "tool==1.0")
    assert versions(resolution) in ({"app": "1.0", "tool": "2.0"}, {"app": "0.9", "tool": "1.0"})
    assert len(resolution.notes) == 1


def test_resolve_leaves_out_absent_packages(index: Index) -> None:
    """The others keep their day and their pins."""
    index.publish("app", "1.0")
    index.publish("app", "2.0", day="2020-01-01")
    index.publish("tool", "1.0")
    resolution = index.resolve("app", "armworld", "tool==1.0")
    assert versions(resolution) == {"app": "1.0", "tool": "1.0"}
    assert [name for name, _ in resolution.left_out] == ["armworld"]
    assert "as of 2019-06-30" in resolution.rung


def test_resolve_leaves_out_the_least_needed(index: Index) -> None:
    index.publish("app", "1.0", "helper<2")
    index.publish("extra", "1.0", "helper>=2")
    for version in ("1.0", "2.0"):
        index.publish("helper", version)
    resolution = index.resolve("app", "extra", optional=("extra",))
    assert versions(resolution) == {"app": "1.0", "helper": "1.0"}
    ((name, reason),) = resolution.left_out
    assert name == "extra"
    assert reason
    index.path.unlink()
    resolution = index.resolve("app", "extra", optional=("app",))
    assert versions(resolution) == {"extra": "1.0", "helper": "2.0"}


def test_resolve_leaves_out_conflicts_with_the_base(index: Index) -> None:
    index.publish("app", "1.0")
    index.publish("new", "1.0", "numpy>=2")
    resolution = index.resolve("new", "app")
    assert versions(resolution) == {"app": "1.0"}
    ((name, reason),) = resolution.left_out
    assert name == "new"
    assert "numpy" in reason


def test_resolve_prefers_the_newest_to_wheels(index: Index) -> None:
    """Otherwise uv would choose a much older release whose requirements all have wheels."""
    index.publish("app", "1.0")
    index.publish("app", "2.0", "helper")
    index.publish_source("helper", "1.0", "deep")
    index.publish("deep", "1.0")
    assert versions(index.resolve("app")) == {"app": "2.0", "deep": "1.0", "helper": "1.0"}


def test_resolve_never_compiles_heavy_packages(index: Index) -> None:
    index.publish("app", "1.0")
    index.publish_source("tokenizers", "0.5")
    resolution = index.resolve("app", "tokenizers")
    assert versions(resolution) == {"app": "1.0"}
    assert [name for name, _ in resolution.left_out] == ["tokenizers"]


def test_resolve_uses_wheels_of_what_cannot_be_compiled(index: Index) -> None:
    index.publish("app", "1.0")
    index.publish_source("atari-py", "0.2", day="2019-02-01")
    assert versions(index.resolve("app", "atari-py")) == {"app": "1.0", "atari-py": "0.2"}
    resolution = index.resolve("app", "atari-py", wheels_only=("atari-py",))
    assert versions(resolution) == {"app": "1.0"}
    assert [name for name, _ in resolution.left_out] == ["atari-py"]
    index.publish("atari-py", "0.1", day="2019-01-01")
    resolution = index.resolve("app", "atari-py", wheels_only=("atari-py",))
    assert versions(resolution) == {"app": "1.0", "atari-py": "0.1"}


def test_resolve_repeats_no_lock_of_what_cannot_be_compiled(index: Index) -> None:
    index.publish_source("atari-py", "0.2", day="2019-02-01")
    assert versions(index.resolve("atari-py==0.2")) == {"atari-py": "0.2"}
    assert index.resolve("atari-py==0.2", wheels_only=("atari-py",)).lock is None


def test_resolve_without_metadata_of_a_source(index: Index) -> None:
    index.publish("app", "1.0")
    index.publish_source("broken", "1.0")
    index.sources.clear()
    resolution = index.resolve("app", "broken==1.0")
    assert versions(resolution) == {"app": "1.0"}
    assert [name for name, _ in resolution.left_out] == ["broken"]


def test_resolve_moves_packages_of_the_base(index: Index) -> None:
    """A package of the base is newer than the day, and stays if nothing needs another version."""
    index.publish("gym", "0.15.4", "cloudpickle~=1.2.0", "six")
    index.publish("app", "1.0", "cloudpickle")
    index.publish("cloudpickle", "1.2.2")
    index.publish("cloudpickle", "2.2.1", day="2023-01-01")
    assert versions(index.resolve("app", base=WITH_HOROVOD)) == {"app": "1.0"}
    resolution = index.resolve("gym", base=WITH_HOROVOD)
    assert versions(resolution) == {"gym": "0.15.4", "cloudpickle": "1.2.2"}


def test_resolve_exempts_floors(index: Index) -> None:
    """SciPy before 1.1 does not work with NumPy 1.18, whatever the day."""
    index.publish("scipy", "1.0.1", day="2018-03-24")
    index.publish("scipy", "1.1.0", day="2018-05-05")
    index.publish("scipy", "1.5.4", day="2020-11-05")
    assert versions(index.resolve("scipy", day=date(2018, 1, 1))) == {"scipy": "1.1.0"}


def test_resolve_keeps_constraints_on_every_rung(index: Index) -> None:
    index.publish("scipy", "1.2.3", day="2019-01-01")
    index.publish("scipy", "1.5.4", day="2019-01-02")
    resolution = index.resolve("scipy==9", constraints=("scipy<1.3",))
    assert versions(resolution) == {"scipy": "1.2.3"}
    assert "-c scipy<1.3" in resolution.requirements


def test_resolve_overrides_requirements_of_packages(index: Index) -> None:
    index.publish("gym", "0.15.4", "opencv-python>=3")
    index.publish("opencv-python", "4.1")
    index.publish("opencv-python-headless", "4.1")
    overrides = ("opencv-python=opencv-python-headless",)
    resolution = index.resolve("gym", overrides=overrides)
    assert versions(resolution) == {"gym": "0.15.4", "opencv-python-headless": "4.1"}
    assert resolution.apt == ("libglib2.0-0",)
    index.publish("other", "1.0")
    index.path.unlink()
    assert versions(index.resolve("other", overrides=overrides)) == {"other": "1.0"}


def test_resolve_without_upload_times(index: Index) -> None:
    index.has_times = False
    index.publish("app", "1.0")
    index.publish("tool", "1.0")
    resolution = index.resolve("app", "tool==1.0")
    assert versions(resolution) == {"app": "1.0", "tool": "1.0"}
    assert "as of" not in resolution.rung
    assert len(resolution.notes) == 1


def test_resolve_ignores_prereleases(index: Index) -> None:
    index.publish("app", "2.0rc1")
    index.publish_source("app", "1.9")
    assert versions(index.resolve("app")) == {"app": "1.9"}


def test_resolve_ends_after_its_tries(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolve, "MOST_TRIES", 1)
    index.publish("app", "1.0")
    with pytest.raises(CheckFailedError, match="After 1 tries"):
        index.resolve("app==9.9")


def test_resolve_keeps_other_files(index: Index) -> None:
    index.path.write_text("my notes\n", encoding="utf-8")
    with pytest.raises(InputError, match="request"):
        index.resolve("app")
    assert index.path.read_text(encoding="utf-8") == "my notes\n"


def test_resolve_without_an_index(index: Index) -> None:
    request = PackageRequest(("app",))
    environment = {**index.environment, "UV_DEFAULT_INDEX": "http://127.0.0.1:9/simple"}
    with pytest.raises(MachineError):
        resolve_as_of(
            request, BASE, DAY, index.path, environment=environment, read_metadata=no_metadata
        )


def test_lock_without_a_day_has_the_same_digest(index: Index) -> None:
    """A lock of `imgbuild extend` stays valid."""
    index.publish("app", "1.0")

    def lock(**options: object) -> Lock:
        return lock_additions(
            ("app",),
            BASE,
            index.path,
            environment=index.environment,
            read_metadata=no_metadata,
            **options,  # type: ignore[arg-type]
        )

    plain = lock()
    assert plain.request_digest == lock(newer={"app": DAY}, overrides=()).request_digest
    dated = lock(exclude_newer=DAY)
    assert dated.request_digest != plain.request_digest
    assert dated.request_digest != lock(exclude_newer=DAY, overrides=("a=b",)).request_digest
    with pytest.raises(UnfitError):
        lock(exclude_newer=date(2018, 1, 1))


def test_modules_are_looked_for_in_wheels(tmp_path: Path) -> None:
    wheels = {}
    for name, paths in {
        "app": ("app/__init__.py", "single.py", "_fast.cpython-36m-x86_64-linux-gnu.so"),
        "other": ("other-1.0.data/purelib/deep/__init__.py",),
        "damaged": (),
    }.items():
        path = tmp_path / f"{name}.whl"
        with zipfile.ZipFile(path, "w") as archive:
            for member in (*paths, f"{name}-1.0.dist-info/RECORD"):
                archive.writestr(member, "")
        wheels[name] = path
    wheels["damaged"].write_bytes(b"no archive")
    lock = Lock("", dict.fromkeys(wheels, "1.0"), {name: (name,) for name in [*wheels, "absent"]})
    modules = {
        **dict.fromkeys(("app", "single", "_fast", "lost"), "app"),
        **dict.fromkeys(("deep", "other"), "other"),
        "damaged": "damaged",
        "absent": "absent",
        "unlocked": "unlocked",
    }
    missing = find_missing_modules(modules, lock, wheels.get)
    assert missing == ("lost", "other")


def test_resolve_needs_the_packages_of_the_base(index: Index) -> None:
    """Nothing can be added, so no package is to blame."""
    index.publish("app", "1.0")
    with pytest.raises(MachineError, match="cloudpickle"):
        index.resolve("app", base=WITH_HOROVOD)
