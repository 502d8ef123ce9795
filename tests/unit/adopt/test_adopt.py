"""The extension that adopt builds, and the commands that it prints."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from imgbuild.adopt import adopt
from imgbuild.adopt.adopt import Adopted, make_extension, program_command, run_command
from imgbuild.adopt.adoption import FILE, LOCK, Adoption
from imgbuild.adopt.closure import Closure, Entry
from imgbuild.adopt.decide import AdoptOptions, DecidedProgram, default_tag
from imgbuild.adopt.failures import Start
from imgbuild.adopt.program_container import WORK
from imgbuild.adopt.remedies import Remedy
from imgbuild.adopt.repository import Evidence, open_repository
from imgbuild.adopt.resolve import Resolution
from imgbuild.core.errors import MachineError
from imgbuild.core.project import Project
from imgbuild.engine.failure import BuildFailedError, BuildFault
from imgbuild.extend.base_image import family_base
from imgbuild.matrix.gpus import Gpu
from imgbuild.matrix.images import Image
from support.project_copy import ROOT

if TYPE_CHECKING:
    from imgbuild.build.context import BuildContext
    from imgbuild.build.source_metadata import MetadataReader
    from imgbuild.engine.client import Engine

#: What uv says of a source distribution that cannot be built.
NOT_BUILT = "error: Failed to build `atari_py==0.2.6`\n  cause: The build backend returned an error"


@pytest.fixture
def program(tmp_path: Path, images: dict[str, Image]) -> DecidedProgram:
    (tmp_path / "train.py").write_text("import tensorflow\n")
    adoption = Adoption(
        tag="adopted/churn:1",
        image="tf-2.2-cpu-debian",
        entry="src/train.py",
        arguments=("--data", "a b"),
        python_path=("", "src"),
        pip=("scipy", "tqdm"),
        apt=("libglib2.0-0",),
    )
    return DecidedProgram(
        open_repository(tmp_path),
        Closure(Entry("src/train.py", Evidence("src/train.py")), (), roots=("", "src")),
        family_base(images["tf-2.2-cpu-debian"], Project(ROOT)),
        adoption,
    )


def test_extension_sets_paths_and_no_display(program: DecidedProgram) -> None:
    extension = make_extension(program)
    assert extension.env["MPLBACKEND"] == "Agg"
    assert extension.env["PYTHONPATH"] == f"{WORK}:{WORK}/src"
    assert extension.apt == ("libglib2.0-0",)


def test_command_starts_file_module_or_jupyterlab(program: DecidedProgram) -> None:
    adoption = program.adoption
    assert program_command(adoption) == ("python", "src/train.py", "--data", "a b")
    module = adoption.model_copy(update={"module": "churn.train"})
    assert program_command(module)[:3] == ("python", "-m", "churn.train")
    notebook = adoption.model_copy(update={"entry": "a.ipynb"})
    assert program_command(notebook)[:2] == ("jupyter", "lab")
    assert "--port 8888" in run_command(replace(program, adoption=notebook))
    hyphen = adoption.model_copy(update={"entry": "-c.py"})
    assert program_command(hyphen)[:2] == ("python", "./-c.py")
    assert run_command(program).endswith("-- python src/train.py --data 'a b'")


def test_run_command_mounts_a_package_by_its_name(program: DecidedProgram) -> None:
    closure = replace(program.closure, package_name="churn")
    assert "--mount .:/packages/churn" in run_command(replace(program, closure=closure))


def test_remedy_replaces_the_same_package(program: DecidedProgram) -> None:
    mended = adopt._apply(Remedy(("SciPy<1.3", "Pillow"), ("libsm6",), "why"), program)
    assert mended.adoption.pip == ("tqdm", "SciPy<1.3", "Pillow")
    assert mended.adoption.apt == ("libglib2.0-0", "libsm6")


def test_remedy_is_tried_once(program: DecidedProgram) -> None:
    start = Start("fails", reason="missing module", missing="tabulate")
    remedy = adopt._find_remedy(start, program, print)
    assert remedy
    assert adopt._find_remedy(start, adopt._apply(remedy, program), print) is None


def test_failure_without_remedy_has_a_reason(program: DecidedProgram) -> None:
    lines: list[str] = []
    start = Start("fails", line="AttributeError: module 'time' has no attribute 'clock'")
    assert adopt._find_remedy(start, program, lines.append) is None
    assert "older Python" in lines[0]


def test_changed_files_change_the_key(program: DecidedProgram) -> None:
    before = adopt._result_key(program)
    assert adopt._result_key(program) == before
    (program.repository.folder / "train.py").write_text("import tensorflow as tf\n")
    assert adopt._result_key(program) != before


def test_lock_changes_the_key_and_reasons_do_not(program: DecidedProgram) -> None:
    folder = program.repository.folder
    (folder / FILE).write_text("")
    program = replace(program, repository=open_repository(folder))
    before = adopt._result_key(program)
    (folder / FILE).write_text("# another reason\n")
    assert adopt._result_key(program) == before
    (folder / LOCK).write_text("tqdm==4.60.0\n")
    assert adopt._result_key(program) != before


def test_result_is_recalled_for_its_image(
    program: DecidedProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    stored = SimpleNamespace(id="sha256:made")
    engine = SimpleNamespace(inspect=lambda _: stored)
    context = cast("BuildContext", SimpleNamespace(engine=engine))
    start = Start("stops", "data", "data/x.csv", not_copied=("big.h5",), seconds=1.5)
    missing = (("armworld", "not on the index"),)
    adopt._keep_result(Adopted(program, start, missing=missing), context)
    known = adopt._recall_result(program, context)
    assert known
    assert (known.start.asked, known.missing, known.is_unchanged) == ("data/x.csv", missing, True)
    stored.id = "sha256:other"
    assert adopt._recall_result(program, context) is None


def test_first_line_is_the_programs(
    program: DecidedProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*_: object, on_line: Callable[[str], None], **__: object) -> Start:
        for line in (
            "Traceback (most recent call last):",
            '  File "a.py"',
            "2026-11-29 20:58:10.355692: E external/local_xla/cuda_fft.cc:467] Unable to register",
            "WARNING: All log messages before absl::InitializeLog() is called are",
            "E0000 00:00:1764450690.355712      12 cuda_dnn.cc:8579] Unable to register",
            "epoch 1",
            "epoch 2",
        ):
            on_line(line)
        return Start("running")

    monkeypatch.setattr(adopt, "start_program", start)
    lines: list[str] = []
    engine = SimpleNamespace(host=None)
    context = cast("BuildContext", SimpleNamespace(engine=engine, log=lines.append))
    adopt._start(program, Resolution(None, ()), "sha256:x", context, AdoptOptions())
    assert lines == ["The program says: epoch 1"]


def test_only_gpu_images_are_tried_with_gpus(
    program: DecidedProgram, images: dict[str, Image], monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[str | None] = []

    def start(*_: object, gpus: str | None, **__: object) -> Start:
        given.append(gpus)
        return Start("running")

    monkeypatch.setattr(adopt, "start_program", start)
    for name in ("tf-2.2-cpu-debian", "tf-2.15-gpu-debian"):
        other = replace(program, base=family_base(images[name], Project(ROOT)))
        for offered in ("nvidia", None):
            version = partial(SimpleNamespace, gpus=offered)
            engine = SimpleNamespace(host=None, version=version)
            context = cast("BuildContext", SimpleNamespace(engine=engine, log=print))
            adopt._start(other, Resolution(None, ()), "sha256:x", context, AdoptOptions())
    assert given == [None, None, "nvidia", None]


def test_gpus_that_the_image_does_not_fit_are_named(
    images: dict[str, Image], monkeypatch: pytest.MonkeyPatch
) -> None:
    def tell(name: str, offered: str | None, *gpus: Gpu, host: str | None = None) -> list[str]:
        monkeypatch.setattr(adopt, "find_gpus", lambda: (list(gpus), ""))
        lines: list[str] = []
        engine = SimpleNamespace(host=host, version=lambda: SimpleNamespace(gpus=offered))
        adopt._tell_gpus(images[name], cast("Engine", engine), lines.append)
        return lines

    card = Gpu("NVIDIA H200", "570.86.15", "9.0")
    (line,) = tell("tf-1.15-gpu-ubuntu", "nvidia", card, card)
    assert "NVIDIA H200" in line
    assert "CUDA 10.0 supports no capability above" in line
    assert tell("tf-2.18-gpu-debian", "nvidia", card) == []
    (line,) = tell("tf-2.18-gpu-debian", "nvidia", Gpu("NVIDIA GH200 480GB", "580.82", "9.0"))
    assert line.startswith("No image can use NVIDIA GH200 480GB")
    assert tell("tf-1.15-gpu-ubuntu", "nvidia", card, host="ssh://other") == []
    assert "no GPUs" in tell("tf-2.15-gpu-debian", None)[0]


def test_gpus_are_told_before_a_large_image_is_built(
    program: DecidedProgram, images: dict[str, Image], monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(*_: object) -> None:
        raise MachineError("built")

    engine = SimpleNamespace(version=lambda: SimpleNamespace(gpus=None))
    monkeypatch.setattr(adopt, "require_docker_client", lambda: None)
    monkeypatch.setattr(adopt, "open_engine", lambda _: nullcontext(engine))
    monkeypatch.setattr(adopt, "provide_image", build)
    program = replace(program, base=family_base(images["tf-2.15-gpu-debian"], Project(ROOT)))
    lines: list[str] = []
    with pytest.raises(MachineError, match="built"):
        adopt.adopt_program(program, Project(ROOT), AdoptOptions(), lines.append)
    assert lines == ["The engine offers no GPUs, so a trial has none."]


def test_remedies_have_a_limit(program: DecidedProgram, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[bool] = []

    def build(program: DecidedProgram, *_: object, may_retry: bool) -> Adopted:
        tries.append(may_retry)
        if may_retry:
            raise adopt._RetryError(Remedy((f"x{len(tries)}",), (), "why"))
        return Adopted(program, Start("fails"))

    monkeypatch.setattr(adopt, "_build_once", build)
    context = cast("BuildContext", SimpleNamespace(log=print))
    reader = cast("MetadataReader", None)
    made = adopt._build_until_it_starts(program, context, reader, AdoptOptions())
    assert tries == [True, True, True, False]
    assert made.program.adoption.pip[-3:] == ("x1", "x2", "x3")
    assert made.remedies == ("why",) * 3


def failed_build(log: Path, output: str) -> BuildFailedError:
    log.write_text(output)
    return BuildFailedError("image", step="install", cause="exit code: 1", tail=(), log=log)


def test_packages_that_cannot_be_compiled(
    program: DecidedProgram, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """First with compilers, then by wheels alone; the decisions keep both."""
    programs: list[DecidedProgram] = []

    def build(program: DecidedProgram, *_: object, **__: object) -> Adopted:
        programs.append(program)
        if not program.adoption.wheels_only:
            raise failed_build(tmp_path / "log", f"{NOT_BUILT}\nsh: 1: make: not found\n")
        return Adopted(program, Start("finished"))

    monkeypatch.setattr(adopt, "_build_once", build)
    context = cast("BuildContext", SimpleNamespace(log=print))
    reader = cast("MetadataReader", None)
    made = adopt._build_until_it_starts(program, context, reader, AdoptOptions())
    assert [bool(program.adoption.build_apt) for program in programs] == [False, True, True]
    assert "make" in made.program.adoption.build_apt
    assert made.program.adoption.wheels_only == ("atari-py",)
    assert made.program.request.wheels_only == ("atari-py",)


def test_full_disk_is_no_fault_of_a_package(program: DecidedProgram, tmp_path: Path) -> None:
    error = failed_build(tmp_path / "log", f"{NOT_BUILT}\nNo space left on device\n")
    assert adopt._find_build_remedy(error, program)
    error.fault = BuildFault("disk", "no space left", "Free some.", of_machine=True, stops_all=True)
    assert adopt._find_build_remedy(error, program) is None
    error.fault = BuildFault("unreachable", "name resolution", "Check it.", of_machine=True)
    assert adopt._find_build_remedy(error, program), "a setup.py that downloads something"


@pytest.mark.parametrize("wheels_only", [(), ("atari-py",)])
def test_build_that_fails_for_another_reason_ends(
    program: DecidedProgram,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    wheels_only: tuple[str, ...],
) -> None:
    output = NOT_BUILT if wheels_only else "No space left on device"
    tries: list[str] = []

    def build(*_: object, **__: object) -> Adopted:
        tries.append("")
        raise failed_build(tmp_path / "log", output)

    monkeypatch.setattr(adopt, "_build_once", build)
    context = cast("BuildContext", SimpleNamespace(log=print))
    reader = cast("MetadataReader", None)
    adoption = program.adoption.model_copy(update={"wheels_only": wheels_only})
    with pytest.raises(BuildFailedError):
        adopt._build_until_it_starts(
            replace(program, adoption=adoption), context, reader, AdoptOptions()
        )
    assert len(tries) == 1


@pytest.mark.parametrize(
    ("outcome", "missing", "code"),
    [
        ("finished", (), 0),
        ("running", (), 0),
        ("stops", (), 0),
        ("fails", (), 1),
        ("finished", (("armworld", "not on the index"),), 1),
    ],
)
def test_exit_code_tells_whether_it_starts(
    program: DecidedProgram, outcome: str, missing: tuple[tuple[str, str], ...], code: int
) -> None:
    start = Start(outcome)  # type: ignore[arg-type] # of the parameters
    assert Adopted(program, start, missing=missing).exit_code == code


@pytest.mark.parametrize(
    ("folder", "tag"),
    [
        ("churn", "adopted/churn:1"),
        ("My Old_Paper!", "adopted/my-old-paper:1"),
        ("...", "adopted/program:1"),
    ],
)
def test_default_tag_is_the_folder(folder: str, tag: str) -> None:
    assert default_tag(folder) == tag
