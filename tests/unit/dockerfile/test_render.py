"""Dockerfiles: how they are rendered and written, what they share, and every kind of drift."""

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from imgbuild.core.errors import InputError, MachineError
from imgbuild.core.project import Project
from imgbuild.dockerfile.labels import text_labels
from imgbuild.dockerfile.render import (
    committed_dockerfile,
    find_drift,
    render_all,
    render_dockerfile,
    template_environment,
    write_all,
)
from imgbuild.dockerfile.stages import Dockerfile, needed_stages
from imgbuild.locks.lockfile import PackageLayer, package_layers
from imgbuild.matrix.images import Image, all_images
from imgbuild.matrix.load import load_matrix
from support.project_copy import with_images

Rendered = Callable[[str], Dockerfile]


@pytest.fixture(scope="module")
def rendered(images: dict[str, Image], project: Project) -> Rendered:
    made = {name: render_dockerfile(image, project.templates) for name, image in images.items()}
    return made.__getitem__


def test_compiled_templates_are_kept_where_there_is_a_cache(
    images: dict[str, Image],
    rendered: Rendered,
    project: Project,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that changed or was damaged is compiled again. A checkout's path need not be text."""
    name, image = next(iter(images.items()))
    templates = shutil.copytree(project.templates, tmp_path / os.fsdecode(b"inv\xff") / "templates")
    templates.with_name("locks").symlink_to(project.locks)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kept = tmp_path / "imgbuild" / "templates"

    def render() -> str:
        template_environment.cache_clear()
        return render_dockerfile(image, templates).text

    for cached in (False, True, True):
        assert render() == rendered(name).text
        assert kept.exists() == cached
        kept.parent.mkdir(exist_ok=True)
    whole = {path: path.read_bytes() for path in kept.iterdir()}
    for size in (None, 999):
        for path, content in whole.items():
            path.write_bytes(content.replace(b"FROM", b"from")[:size])
        assert render() == rendered(name).text
        assert {path: path.read_bytes() for path in kept.iterdir()} == whole
    with (templates / "Dockerfile.j2").open("a", encoding="utf-8") as file:
        file.write("# changed\n")
    shutil.rmtree(kept)  # beneath an environment that keeps them
    assert render_dockerfile(image, templates).text.endswith("# changed\n")


def test_the_default_uv_is_the_one_that_imgbuild_depends_on(project: Project) -> None:
    uv = load_matrix(project.matrix).uv
    locked = (project.root / "build" / "requirements.txt").read_text("utf-8")
    entry = locked.partition(f"\nuv=={uv.version} ")[2].partition("==")[0]
    assert len(uv.hashes) == 2
    assert all(f"--hash=sha256:{sha256}" in entry.split() for sha256 in uv.hashes)


def test_the_documented_way_to_conda_forge_has_nothing_of_anaconda(
    project: Project, matrix_text: str, tmp_path: Path
) -> None:
    """As the page has it, but for the sha256 that it leaves open."""
    page = (project.root / "docs" / "ubuntu-upstreams.md").read_text("utf-8")
    block = page.partition("## Python from conda-forge")[2].split("```yaml\n")[1].split("```")[0]
    change = yaml.safe_load(block.replace("…", f'"{"0" * 64}"'))
    data = yaml.safe_load(matrix_text) | {"epoch": "2026-11-01T00:00:00Z"}
    for section in ("upstreams", "sources", "python"):
        data[section] |= change[section]
    data["stacks"]["ubuntu"]["pins"] |= change["stacks"]["ubuntu"]["pins"]
    path = with_images(tmp_path, project) / "matrix.yaml"
    path.write_text(yaml.safe_dump(data, allow_unicode=True), encoding="utf-8")
    image = next(one for one in all_images(load_matrix(path)) if one.name == "tf-2.2-gpu-ubuntu")
    text = render_dockerfile(image, project.templates).text
    assert "repo.anaconda.com" not in text
    assert "https://conda.anaconda.org/conda-forge/linux-64/python-3.6.13-" in text
    licences = text_labels(image)["org.opencontainers.image.licenses"]
    assert licences == "Apache-2.0 AND LicenseRef-NVIDIA-EULA"


def test_labels_and_variables_have_no_blanks(images: dict[str, Image], rendered: Rendered) -> None:
    """BuildKit's history drops the quotes, and scanners read the history as a Dockerfile."""
    for name in images:
        final = rendered(name).for_architecture("amd64").final
        lines = [one.line for one in final.instructions]
        words = " ".join(line for line in lines if line.startswith(("ENV", "LABEL"))).split()
        assert [word for word in words if "=" not in word] == ["ENV", "LABEL"], name


def test_horovod_waits_for_no_copy_of_tensorflow(
    images: dict[str, Image], rendered: Rendered
) -> None:
    """Copies of gigabytes are made while Horovod is compiled, not before."""
    for name in (name for name, image in images.items() if image.horovod):
        stages = needed_stages(rendered(name).for_architecture("amd64").stages, "horovod-wheel")
        assert "packages-tensorflow" in stages, name
        assert "framework" not in stages, name


@pytest.mark.parametrize(
    ("name", "other", "own"),
    [
        ("2.1-cpu-debian", "2.2-cpu-debian", "packages-tensorflow packages horovod-source final"),
        ("2.2-cpu-debian", "2.2-cpu-debian-intelmpi", "mpi horovod-build final"),
        ("2.2-cpu-ubuntu", "2.2-gpu-ubuntu", "packages-tensorflow framework horovod-build final"),
    ],
)
def test_equal_stages_are_shared(rendered: Rendered, name: str, other: str, own: str) -> None:
    """BuildKit's cache and the shared layers rest on equal text."""
    first, second = (rendered(f"tf-{one}").stages for one in (name, other))
    shared = {
        stage for stage in first.keys() & second if first[stage].digest == second[stage].digest
    }
    assert first.keys() - shared == {*own.split()}


@pytest.mark.parametrize(
    ("committed", "expected"),
    [
        (None, ": is missing"),
        ("FROM a\n", ":2: differs\n  committed: (end of file)\n  rendered:  RUN b"),
        ("FROM a\r\nRUN b\n", ": differs in line ends only"),
    ],
)
def test_every_kind_of_drift_is_found(tmp_path: Path, committed: str | None, expected: str) -> None:
    path = tmp_path / "tf-x" / "Dockerfile"
    if committed is not None:
        path.parent.mkdir()
        path.write_text(committed)
    assert find_drift({path: "FROM a\nRUN b\n"}, tmp_path) == [f"{path}{expected}"]


def test_changed_files_are_written_and_those_of_no_image_deleted(tmp_path: Path) -> None:
    path, stale = (tmp_path / name / "Dockerfile" for name in ("tf-x", "tf-stale"))
    for one in (path, stale):
        assert write_all({one: "FROM a\n"}, one.parent) == [one]
        assert write_all({one: "FROM a\n"}, one.parent) == []
    (stale.parent / "notes").touch()
    assert find_drift({}, tmp_path) == [
        f"{one}: belongs to no image of the matrix" for one in (stale, path)
    ]
    in_the_way = tmp_path / "tf-file"
    in_the_way.touch()
    new = {path: "FROM b\n", in_the_way / "Dockerfile": "FROM b\n"}
    with pytest.raises(MachineError, match="tf-file/Dockerfile"):
        write_all(new, tmp_path)
    assert (path.read_text(), stale.exists()) == ("FROM a\n", True), "all or nothing"
    in_the_way.unlink()
    assert write_all(new, tmp_path) == [*new, stale]
    assert [*stale.parent.iterdir()] == [stale.parent / "notes"]
    assert write_all({}, tmp_path) == sorted(new)
    assert not path.parent.exists()


def _project_without_dockerfiles(folder: Path, project: Project) -> Project:
    here = Project(folder)
    here.templates.parent.mkdir()
    here.templates.symlink_to(project.templates)
    here.locks.symlink_to(project.locks)
    return here


@pytest.mark.parametrize("name", ["Dockerfile", "constraints.txt", "gpu.json"])
def test_a_file_that_the_image_no_longer_has_is_deleted(tmp_path: Path, name: str) -> None:
    path = tmp_path / "tf-x" / name
    path.parent.mkdir()
    path.touch()
    assert find_drift({}, tmp_path) == [f"{path}: belongs to no image of the matrix"]
    write_all({}, tmp_path)
    assert not path.parent.exists()


def test_a_build_refuses_a_dockerfile_that_is_not_there(
    images: dict[str, Image], project: Project, tmp_path: Path
) -> None:
    image, here = images["tf-2.2-cpu-debian"], _project_without_dockerfiles(tmp_path, project)
    with pytest.raises(InputError, match=f"{image.name}/Dockerfile is missing or differs from"):
        committed_dockerfile(image, here)


def test_facts_about_gpus_are_the_matrixs_and_only_of_images_for_gpus(
    images: dict[str, Image], project: Project, tmp_path: Path
) -> None:
    image, here = images["tf-2.12-gpu-debian"], _project_without_dockerfiles(tmp_path, project)
    shutil.copytree(project.dockerfiles / image.name, here.dockerfiles / image.name)
    assert committed_dockerfile(image, here) == render_dockerfile(image, project.templates)
    facts = here.dockerfiles / image.name / "gpu.json"
    facts.write_text(facts.read_text().replace("11.8", "11.2"))
    with pytest.raises(InputError, match=f"{image.name}/gpu.json is missing or differs from"):
        committed_dockerfile(image, here)
    rendered = render_all([images["tf-2.12-cpu-debian"]], project.templates, tmp_path / "made")
    assert {path.name for path in rendered if "made" in path.parts} == {
        "Dockerfile",
        "constraints.txt",
        "constraints-arm64.txt",
    }


def test_what_one_lock_of_builders_made_of_a_source_is_never_installed_with_another(
    images: dict[str, Image], rendered: Rendered
) -> None:
    """Uv takes a kept wheel for any Python that it fits; its metadata name the setuptools."""
    caches: dict[str, set[str]] = {}
    for name, image in images.items():
        for stage in rendered(name).stages.values():
            if "/run/packages/install" in stage.text:
                (cache,) = re.findall(r"id=([\w.-]*uv[\w.-]*),", stage.text)
                caches.setdefault(image.build_lock_name, set()).add(cache)
    assert [len(found) for found in caches.values()] == [1, 1, 1]
    assert len(set.union(*caches.values())) == len(caches)


@pytest.mark.parametrize(
    ("template", "fault"),
    [
        ("FROM base\n{% if %}", "images/templates/Dockerfile.j2:2"),
        ("FROM base\n{{ nothing }}", "Dockerfile.j2:2: UndefinedError: 'nothing'"),
        ("FROM base\n{{ 1 // 0 }}", "Dockerfile.j2:2: ZeroDivisionError"),
        ("FROM base\n{% include 'nope.j2' %}", "Dockerfile.j2:2: TemplateNotFound"),
        ("FROM base\n{% include 'Dockerfile.j2' %}", "Dockerfile.j2:2: RecursionError"),
        ("FROM base\n\udcff", "Dockerfile.j2: UnicodeDecodeError"),
        ("FROM base\n{% include 'partials/other.j2' %}", "partials/other.j2:3: ZeroDivision"),
    ],
)
def test_a_broken_template_is_named(
    images: dict[str, Image], project: Project, tmp_path: Path, template: str, fault: str
) -> None:
    (tmp_path / "locks").symlink_to(project.locks)
    (tmp_path / "templates" / "partials").mkdir(parents=True)
    (tmp_path / "templates" / "partials" / "other.j2").write_text("\n\n{{ 1 // 0 }}")
    path = tmp_path / "templates" / "Dockerfile.j2"
    path.write_text(template, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(InputError, match=re.escape(fault)):
        render_dockerfile(images["tf-2.2-cpu-debian"], tmp_path / "templates")


def test_packages_that_one_dockerfile_cannot_install_are_an_error(
    images: dict[str, Image], project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock for arm64 has other layers, for example no NumPy."""

    def layers(image: Image, locks: Path) -> tuple[PackageLayer, ...]:
        all_layers = package_layers(image, locks)
        return all_layers[1:] if image.architecture == "arm64" else all_layers

    monkeypatch.setattr("imgbuild.dockerfile.variables.package_layers", layers)
    with pytest.raises(InputError, match=r"tf-2\.15\.1-py3\.11-cpu-arm64\.txt has packages for"):
        render_dockerfile(images["tf-2.15-cpu-debian"], project.templates)
