"""Each kind of change rebuilds exactly the images that it is an input of, and the plan names it.

The images that are expected are found by the matrix, the committed Dockerfiles and the locks alone.
"""

import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from checkout_copy import BASE, Checkout, copied, inputs_changed, named
from fake_engine import FakeEngine

from imgbuild.errors import InputError
from imgbuild.inputs import build_inputs as inputs
from imgbuild.matrix.load import load_matrix
from imgbuild.plan.plan import Action
from imgbuild.project import Project
from imgbuild.suites.store import ReportStore


@pytest.fixture(scope="module")
def built(project: Project, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    """Return a copy of the project, built."""
    folder = tmp_path_factory.mktemp("built")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inputs, "uv_context", lambda _: Path("/uv"))
        made = Checkout(
            copied(project, folder / "checkout"),
            FakeEngine(),
            folder / "cache",
            ReportStore(folder / "reports"),
        )
        made.build()
        yield made


@pytest.fixture
def checkout(built: Checkout, tmp_path: Path) -> Checkout:
    """Return a copy that a test may change, with an engine that has all images of it."""
    return built.copy(tmp_path)


def _mounts(checkout: Checkout, file: str) -> set[str]:
    """Return the images whose committed Dockerfile names a file of the context."""
    texts = {
        image.name: (checkout.project.dockerfiles / image.name / "Dockerfile").read_text()
        for image in checkout.images
    }
    return named(checkout.images, lambda image: file in texts[image.name])


def test_nothing_changed_and_the_engine_was_asked_once(checkout: Checkout) -> None:
    assert checkout.rebuilt() == {}
    assert checkout.engine.calls == ["images"]


def test_one_pin_of_one_row(checkout: Checkout) -> None:
    before = checkout.images
    index, old, new = _other_horovod(checkout)
    row = load_matrix(checkout.project.matrix).images[index]
    rebuilt = checkout.rebuilt()
    mine = named(before, lambda i: (i.row.tensorflow, i.row.stack) == (row.tensorflow, row.stack))
    mine &= named(checkout.images, lambda i: i.row == row)
    assert set(rebuilt) == mine
    for item in rebuilt.values():
        assert item.reason.startswith(f"changed: pin horovod {old} → {new}; Dockerfile: stage")
        assert {"input": "pin horovod", "old": old, "new": new} in item.as_json()["changes"]


def _other_horovod(checkout: Checkout) -> tuple[int, str, str]:
    """Give a row another Horovod that the rules allow; return row, old and new version."""
    matrix = load_matrix(checkout.project.matrix)
    for index, row in enumerate(matrix.images):
        for version in matrix.horovod:
            if version == row.horovod.version:
                continue
            whole = checkout.project.matrix.read_text(encoding="utf-8")
            checkout.edit_matrix(partial(_set_horovod, index, version))
            try:
                load_matrix(checkout.project.matrix)
            except InputError:
                checkout.project.matrix.write_text(whole, encoding="utf-8")
                continue
            return index, row.horovod.version, version
    pytest.fail("no row of the matrix can have another Horovod")


def _set_horovod(index: int, version: str, document: dict[str, Any]) -> None:
    document["images"][index]["horovod"] = version


def test_the_scheme_of_tags_is_no_input(checkout: Checkout) -> None:
    def fewer(document: dict[str, Any]) -> None:
        document["tags"] = {"immutable": [*document["tags"]["immutable"], "stack"], "moving": []}

    checkout.edit_matrix(fewer)
    assert checkout.rebuilt() == {}


def test_a_pin_of_a_stack(checkout: Checkout) -> None:
    def newer(document: dict[str, Any]) -> None:
        document["stacks"]["debian"]["pins"]["git"] = "2.99.1"

    old = load_matrix(checkout.project.matrix).stacks["debian"].pins.git
    assert old is not None
    checkout.edit_matrix(newer)
    rebuilt = checkout.rebuilt()
    wanted = named(checkout.images, lambda i: i.stack == "debian" and i.row.git is None)
    assert set(rebuilt) == wanted
    assert all(f"pin git {old.version} → 2.99.1" in item.reason for item in rebuilt.values())


def test_one_partial(checkout: Checkout) -> None:
    checkout.replace("images/templates/partials/mpi-index.j2", "set -eu\n", "set -eux\n")
    rebuilt = checkout.rebuilt()
    assert set(rebuilt) == named(checkout.images, lambda i: i.mpi.origin == "index")
    assert inputs_changed(rebuilt) == {"stage mpi"}
    assert {item.reason for item in rebuilt.values()} == {"changed: Dockerfile: stage mpi"}


def test_a_macro(checkout: Checkout) -> None:
    path = checkout.path("images/templates/macros.j2")
    text = path.read_text(encoding="utf-8")
    changed, count = re.subn(r"(macro nvidia_install\([^)]*\) -%}\n)", r"\1true && ", text)
    assert count == 1
    path.write_text(changed, encoding="utf-8")
    rebuilt = checkout.rebuilt()
    assert set(rebuilt) == named(checkout.images, lambda i: i.variant == "gpu")
    assert all(name.startswith("stage ") for name in inputs_changed(rebuilt))


@pytest.mark.parametrize("comment", ["# A remark.\n\n", "{# A remark. #}\n"])
def test_a_comment_between_instructions_builds_nothing(checkout: Checkout, comment: str) -> None:
    checkout.replace("images/templates/partials/os.j2", "FROM base", f"{comment}FROM base")
    assert checkout.rebuilt() == {}


def test_a_comment_in_a_here_document_is_content(checkout: Checkout) -> None:
    checkout.replace(
        "images/templates/partials/mpi-index.j2", "set -eu\n", "set -eu\n# A remark.\n"
    )
    assert set(checkout.rebuilt()) == named(checkout.images, lambda i: i.mpi.origin == "index")


def _append(checkout: Checkout, name: str) -> None:
    with checkout.path(name).open("a", encoding="utf-8") as file:
        file.write("# more\n")


@pytest.mark.parametrize(
    ("file", "part"),
    [
        ("mpiexec-ssh", "files/mpiexec-ssh"),
        ("keyrings/README.md", "files/keyrings"),
        ("ssh/ssh_config", "files/ssh"),
    ],
)
def test_a_file_is_an_input_of_those_that_mount_it(
    checkout: Checkout, file: str, part: str
) -> None:
    _append(checkout, f"images/files/{file}")
    rebuilt = checkout.rebuilt()
    assert set(rebuilt) == _mounts(checkout, part)
    assert inputs_changed(rebuilt) == {part}
    (reason,) = {item.reason for item in rebuilt.values()}
    assert re.fullmatch(f"changed: {part} [0-9a-f]{{12}} → [0-9a-f]{{12}}", reason)


@pytest.mark.parametrize("name", ["images/files/of-nobody.sh", "README.md"])
def test_a_file_that_no_image_uses(checkout: Checkout, name: str) -> None:
    _append(checkout, name)
    assert checkout.plan().keys() == {image.name for image in checkout.images}
    assert checkout.rebuilt() == {}


def _free_package(checkout: Checkout, lock: str) -> tuple[str, str]:
    """Return a package of a lock, and its version, of the last layer.

    No condition of the matrix is about it.
    """
    matrix = load_matrix(checkout.project.matrix)
    bound = {re.split("[=<>!~]", c.require)[0] for c in (*matrix.requirements, *matrix.constraints)}
    bound |= {package for layer in matrix.package_layers.values() for package in layer}
    text = checkout.path(f"images/locks/{lock}").read_text(encoding="utf-8")
    entries: list[tuple[str, str]] = re.findall(r"^([a-z0-9-]+)==([0-9.]+)", text, re.MULTILINE)
    return next(e for e in entries if e[0] not in bound and not e[0].startswith("tensor"))


def test_one_lock(checkout: Checkout) -> None:
    lock = checkout.images[0].lock_name
    package, version = _free_package(checkout, lock)
    old, new = f"\n{package}=={version}", f"\n{package}=={version}.1"
    checkout.replace(f"images/locks/{lock}", old, new)
    rebuilt = checkout.rebuilt()
    assert set(rebuilt) == named(checkout.images, lambda i: i.lock_name == lock)
    (reason,) = {item.reason for item in rebuilt.values()}
    assert reason == f"changed: lock: {package} {version} → {version}.1"


def test_one_lock_in_a_layer_that_images_share(checkout: Checkout) -> None:
    """The images of this lock leave the layer; the others keep it."""
    lock = checkout.images[0].lock_name
    checkout.replace(f"images/locks/{lock}", "\nsix==", "\nsix==9.")
    with pytest.raises(InputError, match="Run `imgbuild render`"):
        checkout.plan()
    rebuilt = checkout.rebuilt()
    assert set(rebuilt) == named(checkout.images, lambda i: i.lock_name == lock)
    assert "stage packages-common" in inputs_changed(rebuilt)
    assert all("lock: six 1" in item.reason for item in rebuilt.values())


@pytest.mark.parametrize("kind", ["lock", "build lock", "MPI lock"])
def test_a_lock_whose_packages_are_the_same(checkout: Checkout, kind: str) -> None:
    names = {
        "lock": {i.name: i.lock_name for i in checkout.images},
        "build lock": {i.name: i.build_lock_name for i in checkout.images},
        "MPI lock": {i.name: i.mpi_lock_name for i in checkout.images if i.mpi_lock_name},
    }[kind]
    lock = next(iter(names.values()))
    _append(checkout, f"images/locks/{lock}")
    rebuilt = checkout.rebuilt()
    assert set(rebuilt) == {image for image, name in names.items() if name == lock}
    assert inputs_changed(rebuilt) == {kind}


def test_the_epoch(checkout: Checkout) -> None:
    old = load_matrix(checkout.project.matrix).epoch
    checkout.edit_matrix(lambda document: document.update(epoch="2026-12-24T00:00:00Z"))
    rebuilt = checkout.rebuilt()
    assert set(rebuilt) == {image.name for image in checkout.images}
    assert all(f"epoch {old} → 2026-12-24T00:00:00Z" in i.reason for i in rebuilt.values())


@pytest.mark.parametrize("purpose", ["runtime", "compiler"])
def test_a_list_of_os_packages(checkout: Checkout, purpose: str) -> None:
    def longer(document: dict[str, Any]) -> None:
        document["operating_systems"]["debian-12"]["packages"][purpose].append("zzz")

    checkout.edit_matrix(longer)
    rebuilt = checkout.rebuilt()
    assert set(rebuilt) == named(checkout.images, lambda i: i.os_name == "debian-12")
    stage = {"runtime": "os", "compiler": "compiler"}[purpose]
    assert all(f"stage {stage}" in {c.input for c in i.changes} for i in rebuilt.values())


def test_the_base_image(checkout: Checkout) -> None:
    checkout.settings["base"] = {"debian-12": {"from": "registry", "image": BASE + "b" * 64}}
    rebuilt = checkout.rebuilt()
    assert set(rebuilt) == named(checkout.images, lambda i: i.os_name == "debian-12")
    assert {i.reason for i in rebuilt.values()} == {f"changed: base {'a' * 12} → {'b' * 12}"}


def test_a_substitute(checkout: Checkout) -> None:
    sources = load_matrix(checkout.project.matrix).sources
    (name,) = {s.url.rsplit("/", 1)[1] for key, s in sources.items() if key.startswith("openmpi")}
    checkout.settings["substitutes"] = {name: "b" * 64}
    rebuilt = checkout.rebuilt()
    assert set(rebuilt) == _mounts(checkout, name)
    assert inputs_changed(rebuilt) == {f"download {name}"}


def test_an_interpreter_of_this_machine(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "prefix_digest", lambda *_: "sha256:" + "c" * 64)
    checkout.settings["cpython"] = {"3.6.15": {"from": "prefix", "path": "/opt/python-3.6"}}
    rebuilt = checkout.rebuilt()
    assert set(rebuilt) == named(checkout.images, lambda i: i.version_of("python") == "3.6.15")
    assert all(f"CPython source → {'c' * 12}" in item.reason for item in rebuilt.values())


def test_uv(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "version", lambda _: "9.9.9")
    rebuilt = checkout.rebuilt()
    assert set(rebuilt) == {image.name for image in checkout.images}
    assert inputs_changed(rebuilt) == {"uv"}


def test_mirrors_and_logins_build_nothing(checkout: Checkout, tmp_path: Path) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine m login a password b\n")
    more: Mapping[str, object] = {"netrc": str(netrc), "mirrors": {"ubuntu": "http://m/ubuntu"}}
    checkout.settings.update(more)
    assert checkout.rebuilt() == {}


def test_a_suite_is_run_again_and_nothing_is_built(checkout: Checkout) -> None:
    _append(checkout, "tests/image/test_pins.py")
    plan = checkout.plan()
    assert {item.action for item in plan.values()} == {Action.TEST}
    assert plan.keys() == {image.name for image in checkout.images}
    assert {item.action for item in checkout.plan(test=False).values()} == {Action.NOTHING}


def test_a_new_row_is_built_and_no_other(checkout: Checkout) -> None:
    taken: list[Any] = []
    checkout.edit_matrix(lambda document: taken.append(document["images"].pop()))
    gone = [item.image_id for item in checkout.rebuilt().values()]
    assert gone == []
    checkout.edit_matrix(lambda document: document["images"].append(taken[0]))
    last = load_matrix(checkout.project.matrix).images[-1]
    mine = named(checkout.images, lambda image: image.row == last)
    for key in [
        k for k, one in checkout.engine.stored.items() if one.labels["imgbuild.name"] in mine
    ]:
        del checkout.engine.stored[key]
    rebuilt = checkout.rebuilt()
    assert set(rebuilt) == mine
    assert {item.reason for item in rebuilt.values()} == {"never built here"}


def test_the_label_stays_small_and_holds_no_path_of_this_machine(checkout: Checkout) -> None:
    for stored in checkout.engine.stored.values():
        label = stored.labels["imgbuild.inputs"]
        assert len(label) < 4096, stored.labels["imgbuild.name"]
        assert str(checkout.project.root.parent) not in label
