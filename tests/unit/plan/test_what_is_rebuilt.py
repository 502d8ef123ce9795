"""Each kind of change rebuilds exactly the images that it is an input of, and the plan names it.

The images that are expected are found by the matrix, the committed Dockerfiles and the locks alone.
There is an image of each kind (``checkout_copy.KINDS``); ``test_golden.py`` has all images.
"""

import re
from collections.abc import Callable, Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from imgbuild.core.errors import InputError
from imgbuild.core.project import Project
from imgbuild.inputs import build_inputs as inputs
from imgbuild.matrix.images import Image
from imgbuild.plan.digest import InputReader
from support.checkout_copy import BASE, Checkout, built_checkout


@pytest.fixture(scope="module")
def built(project: Project, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inputs, "prepare_uv", lambda _: Path("/uv"))
        patch.setattr(inputs, "digest_prefix", lambda *_: "sha256:" + "c" * 64)
        yield built_checkout(project, tmp_path_factory.mktemp("built"))


@pytest.fixture
def checkout(built: Checkout, tmp_path: Path) -> Checkout:
    """Return a copy that a test may change, with an engine that has all images of it."""
    return built.copy(tmp_path)


def _append(checkout: Checkout, name: str) -> None:
    with checkout.path(name).open("a", encoding="utf-8") as file:
        file.write("# more\n")


def _put(value: object, *keys: Any) -> Callable[[Checkout], None]:
    """Set a value of the matrix, or add it to a list."""

    def edit(document: Any) -> None:
        for key in keys[:-1]:
            document = document[key]
        if isinstance(document.get(keys[-1]), list):
            document[keys[-1]].append(value)
        else:
            document[keys[-1]] = value

    return lambda checkout: checkout.edit_matrix(edit)


def _replace(name: str, old: str, new: str) -> Callable[[Checkout], None]:
    return lambda checkout: checkout.replace(f"images/templates/{name}.j2", old, new)


def _change_package(checkout: Checkout) -> None:
    """Change a package of the first image's lock that no condition of the matrix is about."""
    matrix = checkout.images[0].matrix
    bound = {re.split("[=<>!~]", c.require)[0] for c in (*matrix.requirements, *matrix.constraints)}
    bound |= {package for layer in matrix.package_layers.values() for package in layer}
    lock = f"images/locks/{checkout.images[0].lock_name}"
    text = checkout.path(lock).read_text(encoding="utf-8")
    found: list[str] = re.findall(r"^[a-z0-9-]+==[0-9.]+", text, re.MULTILINE)
    package = next(e for e in found if e.split("==")[0] not in bound and e[:6] != "tensor")
    checkout.replace(lock, f"\n{package}", f"\n{package}.1")


def _make_executable(checkout: Checkout) -> None:
    checkout.path("images/files/network.sh").chmod(0o755)


def _compile(checkout: Checkout) -> None:
    folder = checkout.path("images/files/start/__pycache__")
    folder.mkdir()
    (folder / "x.pyc").write_text("")


def _append_to_lock(kind: str) -> Callable[[Checkout], None]:
    """Change a lock, but none of its packages."""

    def change(checkout: Checkout) -> None:
        locks = [getattr(image, kind) for image in checkout.images]
        _append(checkout, f"images/locks/{next(lock for lock in locks if lock)}")

    return change


#: Stands for the value that the first image has, of those that have one.
FIRST = object()


def _concerned(checkout: Checkout, of: str | dict[str, object]) -> set[str]:
    """Return the images with these values, or whose committed Dockerfile names a file."""
    images = checkout.images  # which reads the matrix

    def value(image: Image, name: str) -> object:
        return image.version_of(name) if name == "python" else attrgetter(name)(image)

    def matches(image: Image) -> bool:
        if isinstance(of, str):
            return of in (checkout.project.dockerfiles / image.name / "Dockerfile").read_text()
        return all(value(image, n) == (first(n) if v is FIRST else v) for n, v in of.items())

    def first(name: str) -> object:
        return next(found for image in images if (found := value(image, name)))

    return checkout.named(matches)


Change = Callable[[Checkout], object]
Row = tuple[Change, str | dict[str, object], str]
OPENMPI = "openmpi-3.1.2.tar.gz"
ALL: dict[str, object] = {}
DEBIAN: dict[str, object] = {"os_name": "debian-12"}
RUNTIME = ("operating_systems", "debian-12", "packages", "runtime")
HEX = "[0-9a-f]{12} → [0-9a-f]{12}"
SETTINGS: dict[str, Any] = {
    "base": {"debian-12": {"from": "registry", "image": BASE + "b" * 64}},
    "substitutes": {OPENMPI: "b" * 64},
    "cpython": {"3.6.15": {"from": "prefix", "path": "/opt/python-3.6"}},
    "mirrors": {"ubuntu": "http://m/ubuntu"},
    "standin": {"note": "for tests"},
}


def _set(name: str) -> Change:
    return lambda checkout: checkout.settings.update({name: SETTINGS[name]})


def _set_keyring(checkout: Checkout) -> None:
    other = str(checkout.path("images/files/keyrings/nvidia-7fa2af80.gpg"))
    checkout.settings["mirrors"] = {"nvidia-cuda": {"url": "http://m/cuda/", "keyring": other}}


def _file(name: str) -> Row:
    file = f"files/{name.partition('/')[0]}"
    return lambda checkout: _append(checkout, f"images/files/{name}"), file, f"{file} {HEX}"


#: A change, the images that it rebuilds, and the reason that the plan has for each of them.
ROWS: list[Row] = [
    (
        _put("2.99.1", "stacks", "debian", "pins", "git"),
        {"stack": "debian", "row.git": None},
        r"pin git [0-9.]+ → 2\.99\.1.*",
    ),
    (_put("2.99.1", "images", 0, "git"), {"row": FIRST}, r"pin git [0-9.]+ → 2\.99\.1.*"),
    (
        _replace("partials/mpi-index", "sh /run/mpi", "sh -x /run/mpi"),
        {"mpi.origin": "index"},
        "Dockerfile: stage mpi",
    ),
    (
        _replace("macros", "    --repository '", "    --hold --repository '"),
        {"variant": "gpu", "stack": "ubuntu"},
        "Dockerfile: stages? [a-z, -]+",
    ),
    *(_file(name) for name in ("mpiexec-ssh", "keyrings/README.md", "start/ssh_config_mpi")),
    (_make_executable, "files/network.sh", f"files/network.sh {HEX}"),
    (
        _change_package,
        {"lock_name": FIRST},
        r"lock: [a-z0-9-]+ ([0-9.]+) → \1\.1; Dockerfile: stage packages",
    ),
    (_append_to_lock("lock_name"), {"lock_name": FIRST}, f"lock {HEX}"),
    (
        _append_to_lock("build_lock_name"),
        {"build_lock_name": FIRST},
        f"build lock {HEX}; Dockerfile: stages packages.*",
    ),
    (_append_to_lock("mpi_lock_name"), {"mpi_lock_name": FIRST}, f"MPI lock {HEX}"),
    (_put("2026-12-24T00:00:00Z", "epoch"), ALL, r"epoch \S+ → 2026-12-24T00:00:00Z.*"),
    (_put("zzz", *RUNTIME), DEBIAN, "Dockerfile: stages? .*(os|system).*"),
    (_set("base"), DEBIAN, f"base {'a' * 12} → {'b' * 12}"),
    (lambda checkout: checkout.settings.pop("base"), DEBIAN, f"base {'a' * 12} → [0-9a-f]{{12}}"),
    (_set("substitutes"), OPENMPI, f"download {OPENMPI} [0-9a-f]+ → {'b' * 12}"),
    (_set("cpython"), {"python": "3.6.15"}, f"CPython source → {'c' * 12}.*"),
    (_set("standin"), ALL, "stand-in nothing → for tests"),
    # apt in the build trusts what this key has signed.
    (
        _set_keyring,
        {"variant": "gpu", "stack": "ubuntu"},
        "keyrings nothing → keyrings-[0-9a-f]{16}",
    ),
]


@pytest.mark.parametrize(("change", "of", "reason"), ROWS)
def test_a_change_rebuilds_the_images_that_it_is_an_input_of(
    checkout: Checkout, change: Change, of: str | dict[str, object], reason: str
) -> None:
    expected = _concerned(checkout, of)
    change(checkout)
    rebuilt = checkout.rebuilt()
    assert set(rebuilt) == expected
    for item in rebuilt.values():
        assert re.fullmatch(f"changed: {reason}", item.reason), item.reason


@pytest.mark.parametrize(
    "change",
    [
        lambda _: None,
        _put("stack", "tags", "immutable"),
        _put({"cpu": "850"}, "images", 0, "budget"),
        _replace("partials/os", "FROM base", "# A remark.\n\n{# Another. #}FROM base"),
        lambda checkout: _append(checkout, "images/files/of-nobody.sh"),
        _compile,
        lambda checkout: _append(checkout, "README.md"),
        # Nothing of a secret may be in the image, so another mirror builds nothing anew.
        _set("mirrors"),
        lambda checkout: checkout.settings.update(netrc=str(checkout.path("README.md"))),
    ],
)
def test_what_is_no_input_rebuilds_nothing(checkout: Checkout, change: Change) -> None:
    checkout.path("README.md").write_text("machine m login a password b\n")
    change(checkout)
    assert checkout.rebuilt() == {}
    assert checkout.engine.calls == ["images"]


LOCK = "images/locks/tf-2.2.3-py3.6-cpu.txt"


@pytest.mark.parametrize(
    ("name", "old", "new", "expected"),
    [
        (LOCK, "(?s).*", "", "'# request:' line is missing"),
        (LOCK, "(tensorflow-cpu|h5py)==2", r"\1==3", "images/locks/.*: has tensorflow-cpu 3"),
        (LOCK, "", None, f"{LOCK.rpartition('/')[2]}: No such file"),
        ("images/files/network.sh", "", None, "images/files/network.sh: a Dockerfile uses it"),
        ("images/locks/layers/*", "$", "# more", "does not match the digest in its name"),
    ],
    ids=["no-lock", "other-versions", "missing-lock", "missing-file", "edited-layer"],
)
def test_an_input_that_is_missing_or_does_not_fit_is_refused(
    checkout: Checkout, name: str, old: str, new: str | None, expected: str
) -> None:
    path = next(checkout.project.root.glob(name))
    text = path.read_text()
    path.unlink()
    if new is not None:
        path.write_text(re.sub(old, new, text))
    with pytest.raises(InputError, match=expected):
        checkout.plan()


def test_a_pattern_means_the_files_that_it_matches(tmp_path: Path) -> None:
    folder = tmp_path / "images" / "files"
    folder.mkdir(parents=True)
    digests = []
    for name in ("a.sh", "b.sh", "c.txt"):
        (folder / name).write_text(name)
        digests.append(InputReader(Project(tmp_path)).digest("files/*.sh"))
    assert digests[0] != digests[1] == digests[2]
    with pytest.raises(InputError, match=r"images/files/d\*: a Dockerfile uses it"):
        InputReader(Project(tmp_path)).digest("files/d*")


def test_one_lock_in_a_layer_that_images_share(checkout: Checkout) -> None:
    """The images of this lock leave the layer; the others keep it."""
    lock = checkout.images[0].lock_name
    checkout.replace(f"images/locks/{lock}", "\nsix==", "\nsix==9.")
    with pytest.raises(InputError, match="Run `imgbuild render`"):
        checkout.plan()
    rebuilt = checkout.rebuilt()
    assert set(rebuilt) == checkout.named(lambda i: i.lock_name == lock)
    for item in rebuilt.values():
        assert "stage packages-common" in {change.input for change in item.changes}
        assert "lock: six 1" in item.reason


def test_the_label_stays_small_and_holds_no_path_of_this_machine(checkout: Checkout) -> None:
    for stored in checkout.engine.stored.values():
        label = stored.labels["imgbuild.inputs"]
        assert len(label) < 4096, stored.labels["imgbuild.name"]
        assert str(checkout.project.root.parent) not in label
