"""``imgbuild add``: a release that a made-up index offers, in a copy of the checkout."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from imgbuild.build.source_metadata import MetadataReader
from imgbuild.core.errors import InputError
from imgbuild.core.files import file_sha256
from imgbuild.core.project import Project
from imgbuild.dockerfile.render import find_drift, render_all
from imgbuild.locks.lockfile import read_lock
from imgbuild.locks.requirements import check_family, lock_family
from imgbuild.maintain.new_version import find_distributions
from imgbuild.maintain.package_index import OfferedFile
from imgbuild.matrix.images import all_images, with_other_architectures
from imgbuild.matrix.new_row import new_row, without_measurements
from support.fake_uv import write_fake_uv
from support.fake_wheel import CPU, FakeWheel
from support.faulty_server import FaultyServer
from support.hostile_package import HostileIndex
from support.offered_wheel import offer, run_command
from support.project_copy import NO_ENGINE, copied, loaded
from support.releases import release_of

pytest_plugins = ("support.audit_fixtures",)
OLD, NEW = release_of("2.3"), "2.3.99"
Add = Callable[..., tuple[int, str]]


@pytest.fixture
def checkout(project: Project, tmp_path: Path) -> Project:
    return copied(project, tmp_path / "checkout", "docs/images.md")


@pytest.fixture
def run_add(
    checkout: Project, index: FaultyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Add:
    """Return how to add a release, which an index offers with what belongs to it.

    A wheel in its place can be given; uv answers with the older release's lock.
    """
    right = FakeWheel("tensorflow-cpu", NEW, loader=CPU, build_info="is_cuda_build = False\n")
    index.project("tensorflow", 'href="/x#sha256=0">x.tar.gz')
    versions = ("2.3.0", "2.3.7", "2.4.1", "1" * 5000)
    boards = (f"tensorboard-{version}-py3-none-any.whl" for version in versions)
    index.project(
        "tensorboard",
        'href="http://[#sha256=0">none',
        *(f'href="/{one}#sha256={"0" * 64}">{one}' for one in boards),
    )
    path = checkout.locks / f"tf-{OLD}-py3.6-cpu.txt"
    lock, entry = path.read_text("utf-8"), read_lock(path).entries["tensorflow-cpu"]
    uv, answer = tmp_path / "uv", tmp_path / "answer.txt"
    write_fake_uv(uv, f"cat {answer} > lock.txt")
    monkeypatch.setattr("uv.find_uv_bin", lambda: str(uv))
    monkeypatch.setattr(MetadataReader, "requirements", lambda *_: {})

    def run(*words: str, wheel: FakeWheel = right) -> tuple[int, str]:
        locked = f"tensorflow-cpu=={NEW} \\\n    --hash=sha256:{offer(index, wheel)}"
        newer = lock.replace(entry, locked).replace("tensorboard==2.3.0", "tensorboard==2.3.7")
        answer.write_text(newer.partition("# request: ")[2].partition("\n")[2], "utf-8")
        code, output, error = run_command(index, "add", "--project", str(checkout.root), *words)
        return code, f"{output}{error}"

    return run


def _contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_package_without_a_wheel_needs_an_engine(
    checkout: Project, run_add: Add, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its code runs in a container alone; without one nothing is changed."""
    index = HostileIndex(tmp_path)
    source = index.source("evil", "1.0")
    file = f"url = '{source.as_uri()}', hashes = {{ sha256 = '{file_sha256(source)}' }}"
    (tmp_path / "found.toml").write_text(
        "lock-version = '1.0'\ncreated-by = 'uv'\n[[packages]]\nname = 'evil'\n"
        f"version = '1.0'\nsdist = {{ {file} }}\n"
    )
    script = (
        'case "$*" in\n'
        f"*'--no-binary evil'*pylock.toml*) cp {tmp_path}/found.toml pylock.toml;;\n"
        "*'--no-binary evil'*) echo evil==1.0 > lock.txt;;\n"
        "*) echo 'Wheels are required for `evil` because' >&2; exit 1;;\nesac"
    )
    uv = write_fake_uv(tmp_path / "uv", script)
    monkeypatch.setattr("uv.find_uv_bin", lambda: str(uv))
    monkeypatch.setenv("DOCKER_HOST", NO_ENGINE["DOCKER_HOST"])
    before = _contents(checkout.root)
    code, output = run_add(NEW)
    assert (code, "evil 1.0 has no wheel for Python 3.6" in output) == (3, True), output
    assert (_contents(checkout.root), index.mark.exists()) == (before, False)


def test_a_patch_release_takes_the_place_of_the_older_one(checkout: Project, run_add: Add) -> None:
    before = checkout.matrix.read_text("utf-8").splitlines()
    code, output = run_add(NEW)
    assert (code, "Still to decide" in output) == (0, True), output
    after = checkout.matrix.read_text("utf-8").splitlines()
    assert {*before} - {*after} == {f"  {OLD}:", f"  - tensorflow: {OLD}"}
    assert [line for line in after if line.startswith("#")] == [
        line for line in before if line.startswith("#")
    ]
    matrix = loaded(checkout)
    new = {image.name: image for image in all_images(matrix) if image.tensorflow == NEW}
    assert [*new] == ["tf-2.3-cpu-debian", "tf-2.3-cpu-debian-intelmpi"]
    image = new["tf-2.3-cpu-debian"]
    assert (image.version_of("tensorboard"), image.wheel.compiler) == ("2.3.7", "7.3.1")
    assert check_family(lock_family(matrix), checkout.locks) == []
    rendered = render_all(all_images(matrix), checkout.templates, checkout.dockerfiles)
    assert find_drift(rendered, checkout.dockerfiles) == []
    assert f" {NEW}<br>" in (checkout.root / "docs" / "images.md").read_text("utf-8")


def test_a_release_without_a_row_of_its_minor_is_a_copy_of_the_next_older(
    checkout: Project, run_add: Add
) -> None:
    text = checkout.matrix.read_text("utf-8")
    text = re.sub(rf"^  - tensorflow: {re.escape(OLD)}\n(    .*\n)+", "", text, flags=re.MULTILINE)
    checkout.matrix.write_text(text, "utf-8")
    code, output = run_add(NEW, "--stack", "debian")
    assert code == 0, output
    matrix = loaded(checkout)
    (row,) = (row for row in matrix.images if row.tensorflow == NEW)
    before = matrix.images[matrix.images.index(row) - 1]
    assert (before.tensorflow, before.stack) == (release_of("2.2"), "debian")
    assert (row.horovod.version, row.budget, row.variants) == ("0.20.3", {}, ("cpu",))


@pytest.mark.parametrize(
    ("words", "offered", "exit_code", "said"),
    [
        ("2.3", {}, 2, "three numbers"),
        (OLD, {}, 2, f"already has TensorFlow {OLD} on debian"),
        ("2.3.98", {}, 2, f"no wheel of TensorFlow 2.3.98 for cp36 .* 2.3 releases: {NEW}"),
        (f"{NEW} --stack rhel", {}, 2, "Stacks: ubuntu, debian"),
        ("2.3.1", {}, 2, f"{OLD} on debian, which is newer than 2.3.1"),
        (f"{NEW} --gpu", {}, 2, "TensorFlow 2.3.99 replaces 2.3.4"),
        (NEW, {"wheel": FakeWheel("tensorflow-cpu", NEW)}, 1, "is_cuda_build = True"),
    ],
)
def test_what_cannot_be_added_changes_nothing(  # noqa: PLR0913, PLR0917 - a case
    checkout: Project,
    run_add: Add,
    words: str,
    offered: dict[str, FakeWheel],
    exit_code: int,
    said: str,
) -> None:
    before = _contents(checkout.root)
    code, output = run_add(*words.split(), **offered)
    assert (code, _contents(checkout.root) == before) == (exit_code, True)
    assert re.search(said, output), output


def test_a_new_minor_is_like_a_release_with_a_horovod_that_was_tried_with_it(
    checkout: Project,
) -> None:
    """Whatever the order of the rows: one without Horovod is no model for others."""
    matrix = loaded(checkout)
    assert new_row(matrix, checkout.matrix, "2.22.0", None, ()).like.horovod.version != "none"
    row = new_row(matrix, checkout.matrix, "2.99.0", None, ())
    with pytest.raises(InputError, match=r"No Horovod .* TensorFlow 2\.99\.0"):
        row.text({"tensorboard": "2.99.0"}, {})


def test_what_was_measured_with_a_release_is_not_copied() -> None:
    row = "  - {tensorflow: 2.18.1, budget: {cpu: 1, gpu: 2}, ran_on: [NVIDIA H200, T4]}"
    assert without_measurements(row) == "  - {tensorflow: 2.18.1}"


@pytest.mark.parametrize("version", ["2.15.9", "2.22.0"], ids=["patch release", "new minor"])
def test_a_release_gets_an_image_for_arm64_if_it_has_a_wheel(
    checkout: Project, version: str
) -> None:
    horovod = checkout.matrix.read_text("utf-8").replace(">=2.16,<2.22", ">=2.16,<2.23")
    checkout.matrix.write_text(horovod, "utf-8")
    row = new_row(loaded(checkout), checkout.matrix, version, None, ())
    usual = f"{version}-cp311-cp311-manylinux_2_17_x86_64.whl"
    files = [f"tensorflow_cpu-{usual}", f"tensorflow-{usual}"]
    other = f"tensorflow-{version}-cp311-cp311-manylinux_2_17_aarch64.whl"

    def images(*offered: str) -> tuple[list[str], list[str]]:
        """Return the new names of images with the index's files, and what was said."""
        page = {name: OfferedFile(name, "", "0" * 64) for name in (*files, *offered)}
        log = list[str]()
        distributions = find_distributions(row, lambda _: page, log.append)
        text = row.text({"tensorboard": "2.15.2"}, distributions)
        checkout.matrix.write_text(text, "utf-8")
        made = with_other_architectures(all_images(loaded(checkout)))
        return [one.name for one in made if one.tensorflow == version and one.usual_mpi], log

    before = checkout.matrix.read_text("utf-8")
    minor = version.rpartition(".")[0]
    both = [f"tf-{minor}-cpu-debian", f"tf-{minor}-cpu-debian-arm64", f"tf-{minor}-gpu-debian"]
    assert images(other) == (both, [])
    checkout.matrix.write_text(before, "utf-8")
    names, (said,) = images()
    assert names == [both[0], both[2]]
    assert said.endswith(f"{version}: no wheel for arm64")
