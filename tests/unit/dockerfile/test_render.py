"""Dockerfiles: the committed ones are the rendered ones, and drift is shown line by line."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from conftest import with_images

from imgbuild.dockerfile.render import (
    committed_dockerfile,
    find_drift,
    render_all,
    render_dockerfile,
    template_environment,
    write_all,
)
from imgbuild.dockerfile.stages import Dockerfile
from imgbuild.dockerfile.variables import UV_SHA256, UV_VERSION
from imgbuild.errors import InputError, MachineError
from imgbuild.matrix.images import Image, all_images, whole_family
from imgbuild.matrix.load import load_matrix
from imgbuild.project import Project

Rendered = Callable[[str], Dockerfile]
Having = Callable[[str], list[str]]


@pytest.fixture(scope="module")
def rendered(images: dict[str, Image], project: Project) -> Rendered:
    made = {name: render_dockerfile(image, project.templates) for name, image in images.items()}
    return made.__getitem__


@pytest.fixture
def having(images: dict[str, Image], rendered: Rendered) -> Having:
    """Return how to get the names of the images whose Dockerfile has a text."""
    return lambda text: [name for name in images if text in rendered(name).text]


def test_the_committed_dockerfiles_are_the_rendered_ones(
    images: dict[str, Image], project: Project
) -> None:
    family = whole_family(next(iter(images.values())).matrix)
    found = render_all(family, project.templates, project.dockerfiles)
    assert len([path for path in found if path.name == "Dockerfile"]) == len(family)
    assert find_drift(found, project.dockerfiles) == []


def test_compiled_templates_are_kept_where_there_is_a_cache(
    images: dict[str, Image],
    rendered: Rendered,
    project: Project,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A template that changed is compiled again; without the folder they are compiled each time."""
    name, image = next(iter(images.items()))
    shutil.copytree(project.root / "images", tmp_path / "images")
    templates, kept = tmp_path / "images" / "templates", tmp_path / "imgbuild" / "templates"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for cached in (False, True, True):
        template_environment.cache_clear()
        assert render_dockerfile(image, templates).text == rendered(name).text
        assert kept.exists() == cached
        (tmp_path / "imgbuild").mkdir(exist_ok=True)
    whole = {path: path.read_bytes() for path in kept.iterdir()}
    changed = {path: content.replace(b"FROM", b"from") for path, content in whole.items()}
    cut = {path: content[: len(content) // 2] for path, content in whole.items()}
    for damaged in (changed, cut):
        for path, content in damaged.items():
            path.write_bytes(content)
        template_environment.cache_clear()
        assert render_dockerfile(image, templates).text == rendered(name).text
        assert {path: path.read_bytes() for path in kept.iterdir()} == whole
    with (templates / "Dockerfile.j2").open("a", encoding="utf-8") as file:
        file.write("# changed\n")
    shutil.rmtree(kept)  # beneath an environment that keeps them
    for _ in range(2):
        assert render_dockerfile(image, templates).text.endswith("# changed\n")
        template_environment.cache_clear()


def test_a_dockerfile_is_short_enough_to_be_read(
    images: dict[str, Image], rendered: Rendered
) -> None:
    """Ubuntu's have a line for each of conda's packages, and NVIDIA's."""
    most = {("cpu", "debian"): 155, ("cpu", "ubuntu"): 166, ("gpu", "debian"): 195}
    for name, image in images.items():
        lines = rendered(name).text.count("\n")
        assert lines <= most.get((image.variant, image.stack), 210), name


def test_an_image_names_its_mpi_and_has_no_other(rendered: Rendered) -> None:
    intel, usual = (rendered(f"tf-2.2-cpu-debian{mpi}").text for mpi in ("-intelmpi", ""))
    assert 'imgbuild.mpi-flavour="intelmpi"' in intel
    assert 'imgbuild.licence.mpi="intel-simplified-software-license"' in intel
    assert "openmpi" not in intel
    assert not any(text in usual for text in ("impi", "imgbuild.licence"))


def test_the_default_uv_is_the_one_that_imgbuild_depends_on(project: Project) -> None:
    locked = (project.root / "build" / "requirements.txt").read_text("utf-8")
    entry = locked.partition(f"\nuv=={UV_VERSION} ")[2].partition("==")[0]
    assert f"--hash=sha256:{UV_SHA256} " in entry or f"--hash=sha256:{UV_SHA256}\n" in entry


def test_a_registry_shows_what_an_image_is(rendered: Rendered) -> None:
    text = rendered("tf-1.12-gpu-ubuntu").final.text
    assert (
        'image.description="TensorFlow 1.12.0 for GPU (CUDA 9.0), Horovod 0.15.2 over Intel MPI '
        '2018.3.222, on Ubuntu 16.04"'
    ) in text
    anaconda, intel = "LicenseRef-Anaconda", "LicenseRef-intel-simplified-software-license"
    assert f'"Apache-2.0 AND LicenseRef-NVIDIA-EULA AND {anaconda} AND {intel}"' in text
    assert 'image.licenses="Apache-2.0" ' in rendered("tf-2.2-cpu-debian").final.text


def test_every_image_can_be_a_node_and_holds_no_host_key(
    images: dict[str, Image], having: Having, project: Project
) -> None:
    assert having(" openssh-server ") == [*images]
    # In the very step that installs the package, whose script makes them.
    script = (project.files / "apt" / "install").read_text("utf-8")
    assert "rm -rf " in script.rpartition("\n\n")[2]
    assert script.endswith(" /etc/ssh/ssh_host_*\n")
    init = 'ENTRYPOINT ["/opt/python/bin/dumb-init", "--", "/usr/bin/env", "--"]'
    assert having(init) == [*images]


def test_the_compiler_of_the_wheel_compiles_horovod(
    images: dict[str, Image], having: Having
) -> None:
    old = [name for name, image in images.items() if image.wheel.compiler.startswith("4.8")]
    ubuntu = [name for name in old if images[name].stack == "ubuntu"]
    assert having("CXX=g++-4.8 ") == ubuntu
    # The nvcc of CUDA 11.8 refuses Debian 12's own, that of CUDA 12 takes it.
    nvcc = {name: image.index_cuda.compiler for name, image in images.items() if image.index_cuda}
    for release in ("11", "12"):
        assert having(f"CXX=g++-{release} ") == [n for n, g in nvcc.items() if g == release]
    assert having("CXX=g++ ") == [n for n in images if n not in {*ubuntu, *nvcc}]
    header = {images[name].minor for name in having("gcc4_std_function.py")}
    assert header == {"1.10", "1.11", "1.12", "1.13", "1.14"}


def test_the_compiler_is_compared_with_what_tensorflow_says(
    edited: Callable[..., Path], project: Project
) -> None:
    for compiler, words in (("9.3.1", "9.3.1"), ("clang-17.0.2", "'Ubuntu Clang 17.0.2'")):
        matrix = load_matrix(edited("compiler: 9.3.1", f"compiler: {compiler}", 9))
        image = next(one for one in all_images(matrix) if one.name == "tf-2.12-cpu-debian")
        text = render_dockerfile(image, project.templates).text
        assert f" sh /run/horovod/compile {words}\n" in text


def test_adasum_for_float16_is_compiled_wherever_horovod_has_adasum(
    images: dict[str, Image], having: Having
) -> None:
    changed = having("target=/run/adasum_float16.py")
    without = {image.minor for image in images.values()} - {images[name].minor for name in changed}
    assert without == {"1.10", "1.11", "1.12", "1.13", "1.14", "1.15", "2.0"}
    assert changed == having('="-mavx -fno-strict-aliasing"')


def test_the_compiler_stays_in_its_stage(rendered: Rendered) -> None:
    stages = rendered("tf-2.2-cpu-debian").stages
    assert "g++" not in stages["os"].text
    compilers = {"installer", "compiler", "horovod-build", "cpython-build"}
    assert not (stages["final"].needs | stages["framework"].needs) & compilers


def test_the_documented_way_to_conda_forge_has_nothing_of_anaconda(
    project: Project, matrix_text: str, tmp_path: Path
) -> None:
    """As the page has it, but for the sha256 that it leaves open."""
    page = (project.root / "docs" / "images.md").read_text("utf-8")
    block = page.partition("### Python from conda-forge")[2].split("```yaml\n")[1].split("```")[0]
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
    assert 'image.licenses="Apache-2.0 AND LicenseRef-NVIDIA-EULA"' in text


def test_horovod_waits_for_no_copy_of_tensorflow(
    images: dict[str, Image], rendered: Rendered
) -> None:
    """Copies of gigabytes are made while Horovod is compiled, not before."""
    for name in images:
        stages = rendered(name).stages
        needed, todo = set[str](), ["horovod-wheel"]
        while todo:
            if (stage := todo.pop()) in stages and stage not in needed:
                needed.add(stage)
                todo += stages[stage].needs
        assert "packages-tensorflow" in needed, name
        assert "framework" not in needed, name


def test_equal_stages_are_shared(rendered: Rendered) -> None:
    """BuildKit's cache and the shared layers rest on equal text."""
    first, second, intel = (
        rendered(name).stages
        for name in ("tf-2.1-cpu-debian", "tf-2.2-cpu-debian", "tf-2.2-cpu-debian-intelmpi")
    )
    different = {name for name, stage in first.items() if second[name].digest != stage.digest}
    assert different == {"packages-tensorflow", "packages", "horovod-source", "final"}
    different = {
        name
        for name, stage in second.items()
        if name not in intel or intel[name].digest != stage.digest
    }
    assert different == {"mpi", "horovod-build", "final"}
    cpu, gpu = (rendered(name).stages for name in ("tf-2.2-cpu-ubuntu", "tf-2.2-gpu-ubuntu"))
    for stage in ("os", "installer", "conda", "python", "compiler", "mpi", "packages-common"):
        assert cpu[stage].digest == gpu[stage].digest, stage


def test_debians_own_python_is_a_virtual_environment_above_the_shared_system(
    rendered: Rendered,
) -> None:
    own, compiled = (rendered(f"tf-{one}-cpu-debian").stages for one in ("2.12", "2.2"))
    assert own["system"].instructions[1] == compiled["os"].instructions[1]
    assert (own["os"].parent, "'python3=3.11.2-*'" in own["os"].text) == ("system", True)
    assert "-m venv --without-pip /opt/python" in own["cpython-environment"].text
    assert "cpython-build" not in own
    for name in ("python", "python3"):  # links would start the system's own
        assert f"&& install /run/python /usr/local/bin/{name}" in own["final"].text
        assert f" /usr/local/bin/{name}" not in compiled["final"].text


def test_a_gpu_image_has_run_time_libraries_and_no_toolkit(rendered: Rendered) -> None:
    stages = rendered("tf-2.1-gpu-ubuntu").stages
    cuda = stages["cuda"].text
    assert all(word in cuda for word in ("libnccl2=2.4.8-1+cuda10.1", "--hold"))
    assert not any(word in cuda for word in ("-dev", "minimal-build"))
    assert stages["framework"].parent == "cuda"


def test_cuda_of_the_index_has_its_compiler_in_no_layer(rendered: Rendered) -> None:
    dockerfile = rendered("tf-2.12-gpu-debian")
    stages, final = dockerfile.stages, dockerfile.final
    needs = final.needs | stages["framework"].needs
    assert {"os", "packages-cuda"} < needs
    assert not {"nvcc", "cuda-home", "cuda-compiler", "keyrings"} & needs
    assert "sh /run/cuda/archive bookworm non-free" in stages["nvcc"].text
    assert "--unpack /out" in stages["nvcc"].text
    assert "CC=gcc-11 CXX=g++-11" in stages["horovod-build"].text
    assert "HOROVOD_BUILD_CUDA_CC_LIST=35,50,60,70,75,80,86,89,90" in stages["horovod-build"].text
    assert 'imgbuild.licence.cuda="nvidia-proprietary-software"' in final.text
    assert {"NVIDIA_REQUIRE_CUDA=cuda>=11.0", "CUDA_CACHE_MAXSIZE=4294967296"} <= {
        *final.text.split()
    }


def test_the_compiler_of_cuda_12_is_that_of_a_newer_debian(rendered: Rendered) -> None:
    stages = rendered("tf-2.15-gpu-debian").stages
    assert "sh /run/cuda/archive trixie non-free" in stages["nvcc"].text
    assert "'nvidia-cuda-toolkit=12.4.131~12.4.1-*'" in stages["nvcc"].text
    assert "HOROVOD_BUILD_CUDA_CC_LIST=50,60,70,75,80,86,89,90" in stages["horovod-build"].text


def test_horovod_of_a_gpu_image_reduces_with_nccl(images: dict[str, Image], having: Having) -> None:
    gpu = [name for name, image in images.items() if image.variant == "gpu"]
    assert having("HOROVOD_GPU_ALLREDUCE=NCCL") == gpu
    # Two targets of its CMake write the same file.
    assert having("MAKEFLAGS=-j1\n") == ["tf-2.3-gpu-ubuntu"]


def test_no_dockerfile_has_a_syntax_line(having: Having) -> None:
    """It would pull a frontend image: builds would fail without a registry."""
    assert having("# syntax") == []


def test_a_login_shell_gets_every_variable_of_the_image(
    images: dict[str, Image], rendered: Rendered, project: Project, tmp_path: Path
) -> None:
    script = "export" + (project.files / "ssh" / "set-up").read_text("utf-8").split("\nexport")[1]
    for folder in ("/tmp", "/etc/profile.d"):  # noqa: S108 - of the image
        script = script.replace(folder, str(tmp_path))
    lines = {one.line for name in images for one in rendered(name).final.instructions}
    given = [dict(w.split("=", 1) for w in x.split()[1:]) for x in lines if x.startswith("ENV ")]
    for values in given:
        build = {"http_proxy": "http://p", "SOURCE_DATE_EPOCH": "1", "HOME": "/root"}
        subprocess.run(["sh", "-c", script], env={**values, **build}, check=True)
        written = (tmp_path / "imgbuild.sh").read_text()
        assert written == "".join(f"export {n}='{v}'\n" for n, v in sorted(values.items()))


@pytest.mark.parametrize(
    ("committed", "expected"),
    [
        ("FROM a\nRUN c\n", ":2: differs\n  committed: RUN c\n  rendered:  RUN b"),
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
    path = tmp_path / "tf-x" / "Dockerfile"
    assert write_all({path: "FROM a\n"}, tmp_path) == [path]
    assert write_all({path: "FROM a\n"}, tmp_path) == []
    assert find_drift({}, tmp_path) == [f"{path}: belongs to no image of the matrix"]
    assert write_all({}, tmp_path) == [path]
    assert not path.parent.exists()


def test_nothing_is_written_if_one_folder_cannot_be(tmp_path: Path) -> None:
    stale = tmp_path / "tf-stale" / "Dockerfile"
    for path in (tmp_path / "tf-a" / "Dockerfile", stale):
        path.parent.mkdir()
        path.write_text("FROM old\n")
    (tmp_path / "tf-b").write_text("a file where the folder should be")
    before = {path: path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    rendered = {tmp_path / name / "Dockerfile": "FROM new\n" for name in ("tf-a", "tf-b")}
    with pytest.raises(MachineError, match=r"Cannot write .*tf-b/Dockerfile.*nothing was changed"):
        write_all(rendered, tmp_path)
    assert before == {path: path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    (tmp_path / "tf-b").unlink()
    (stale.parent / "notes").touch()
    assert write_all(rendered, tmp_path) == [*rendered, stale]
    assert not stale.exists()


@pytest.mark.parametrize("committed", [None, "FROM other\n"])
def test_a_build_refuses_a_dockerfile_that_is_not_the_rendered_one(
    images: dict[str, Image], project: Project, tmp_path: Path, committed: str | None
) -> None:
    image = images["tf-2.2-cpu-debian"]
    folder = tmp_path / "images"
    folder.mkdir()
    for name in ("templates", "locks"):
        (folder / name).symlink_to(project.root / "images" / name)
    shutil.copytree(project.dockerfiles / image.name, folder / "dockerfiles" / image.name)
    here = Project(tmp_path)
    assert committed_dockerfile(image, here).text == committed_dockerfile(image, project).text
    path = here.dockerfiles / image.name / "Dockerfile"
    path.write_text(committed) if committed else path.unlink()
    with pytest.raises(InputError, match=r"is not what matrix\.yaml and images/templates say"):
        committed_dockerfile(image, here)


@pytest.mark.parametrize(
    ("template", "fault"),
    [
        ("FROM base\n{% if %}", r"images/templates/Dockerfile\.j2:2"),
        ("FROM base\n{{ nothing }}", r"Dockerfile\.j2:2: UndefinedError: 'nothing' is undefined"),
        ("FROM base\n{{ 1 // 0 }}", r"Dockerfile\.j2:2: ZeroDivisionError"),
        ("FROM base\n{{ none() }}", r"Dockerfile\.j2:2: TypeError"),
        ("FROM base\n{% include 'nope.j2' %}", r"Dockerfile\.j2:2: TemplateNotFound"),
        ("FROM base\n{% include 'Dockerfile.j2' %}", r"Dockerfile\.j2:2: RecursionError"),
        ("FROM base\n\udcff", r"Dockerfile\.j2: UnicodeDecodeError"),
        ("FROM base\n{% include 'partials/other.j2' %}", r"partials/other\.j2:3: ZeroDiv"),
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
    with pytest.raises(InputError, match=fault):
        render_dockerfile(images["tf-2.2-cpu-debian"], tmp_path / "templates")
