"""The examples, run as their README says: programs in the images, manifests as operators would."""

import json
import re
import shutil
from pathlib import Path
from zipfile import ZipFile

import pytest

from imgbuild.core.user_folders import cache_dir
from imgbuild.inputs.build_inputs import prepare_uv
from support.checkout import LEARNT, ROOT, Bases, Checkout
from support.copied_checkout import ca_bundle
from support.kubeflow import Cluster
from support.page_commands import IMGBUILD, PageCommand, Reader, page_commands, section

pytestmark = pytest.mark.nightly

EXAMPLES = ROOT / "examples"
DOCS = ROOT / "docs"
KERAS = (("1.10", "2.2.5"), ("1.15", "2.3.1"), ("2.2", "2.4.3"))


@pytest.fixture
def cluster(checkout: Checkout, open_folder: Path, mark: str) -> Cluster:
    """Give a network for one job, a copy of the examples, and a folder that all may write to."""
    model = open_folder / "model"
    model.mkdir()
    model.chmod(0o777)
    code = shutil.copytree(EXAMPLES, open_folder / "examples")
    checkout.printed("network", "create", "--internal", mark)
    return Cluster(checkout, open_folder, {"code": code, "imgbuild-model": model}, mark)


@pytest.mark.parametrize("name", ["mpijob", "mpijob-intelmpi", "tfjob"])
def test_a_job_learns_together(
    base: Bases, checkout: Checkout, cluster: Cluster, name: str
) -> None:
    """On two workers, or with a parameter server."""
    text = (EXAMPLES / "kubernetes" / f"{name}.yaml").read_text(encoding="utf-8")
    for published in {*re.findall(r"image: (\S+)", text)}:
        (row,) = checkout.json("show", published.rpartition(":")[2])
        text = text.replace(published, base(row["name"]).tag)
    printed = cluster.run(text)
    assert LEARNT.search(printed)
    assert printed.count("2 ranks learnt") == (name != "tfjob")


@pytest.mark.parametrize("version", ["1.10", "2.2"])
def test_function_is_sent_to_two_processes(base: Bases, checkout: Checkout, version: str) -> None:
    job = (f"--volume={EXAMPLES}:/job:ro", base(f"tf-{version}-cpu-debian").tag)
    printed = checkout.printed("run", "--rm", *job, "python", "/job/pickle_import_inside.py")
    assert printed.splitlines() == ["slope 2.0: learnt 2.0", "slope -3.0: learnt -3.0"]


@pytest.mark.parametrize(("version", "keras"), KERAS)
def test_standalone_keras_is_added_to_an_image(
    base: Bases, checkout: Checkout, tag: str, version: str, keras: str
) -> None:
    folder, on = EXAMPLES / "keras-standalone", base(f"tf-{version}-cpu-debian").tag
    arguments = (f"--build-arg=BASE={on}", f"--build-arg=KERAS={keras}")
    secret = f"--secret=id=ca,src={ca_bundle(ROOT)}"
    checkout.printed("build", *arguments, secret, f"--tag={tag}", str(folder))
    job = (f"--volume={folder}:/job:ro", tag, "python", "/job/train.py")
    printed = checkout.printed("run", "--rm", *job)
    assert f"Keras {keras} on TensorFlow {version}." in printed
    assert LEARNT.search(printed)


def test_uv_keeps_to_the_packages_of_an_image(
    base: Bases, checkout: Checkout, tmp_path: Path
) -> None:
    """As pip does, which the suite `pins` sees; no image has uv."""
    name = base("tf-2.2-cpu-debian").tag
    with ZipFile(tmp_path / "numpy-9999-py3-none-any.whl", "w") as wheel:
        metadata = "Metadata-Version: 2.1\nName: numpy\nVersion: 9999\n"
        wheel.writestr("numpy-9999.dist-info/METADATA", metadata)
        wheel.writestr("numpy-9999.dist-info/WHEEL", "Wheel-Version: 1.0\n")
    volumes = {"/run/uv": prepare_uv(cache_dir()), "/run/wheels": tmp_path}
    mounts = [f"--volume={folder}:{place}:ro" for place, folder in volumes.items()]
    command = "echo numpy | %s /run/uv/uv pip compile --offline --no-index -f /run/wheels -"
    kept, replaced = (
        checkout.docker("run", "--rm", *mounts, name, "sh", "-c", command % variable)
        for variable in ("", "UV_CONSTRAINT=")
    )
    assert kept.returncode == 1
    assert "numpy==1.18.5" in kept.stderr
    assert "numpy==9999" in replaced.stdout


@pytest.fixture
def reader(checkout: Checkout, tmp_path: Path, mark: str, tag: str) -> Reader:
    names = {
        **IMGBUILD,
        # Parameter servers: in the job's own network they have the page's names.
        r"--name \$task": f"--name {mark}-$task --network-alias $task",
        "network (create |rm |)job": rf"network \1{mark}",
        "volume (create|rm) model": rf"volume \1 {mark}",
        "-v model:": f"-v {mark}:",
        r"\b(wait|logs) chief": rf"\1 {mark}-chief",
        "(?<=-chief) worker": f" {mark}-worker",
        "rm -f ps worker chief": f"rm -f {mark}-ps {mark}-worker {mark}-chief",
        # Derived images: under another name, and without the base's suites.
        r"(extend -f \S+)": rf"\1 --no-test --tag {tag}",
        r"tensorflow-(onnx|notebook):\S+": tag,
        "--code": f"--job {mark} --code",
    }
    return Reader(checkout, tmp_path, names).with_examples()


@pytest.mark.parametrize(
    ("version", "program"),
    [("1.15", "train_ps.py"), ("2.2", "train_ps.py"), ("2.15", "train_ps_keras.py")],
)
def test_the_page_of_parameter_servers(
    base: Bases, reader: Reader, version: str, program: str
) -> None:
    """The page's commands in one shell, since later ones take variables of the first."""
    page = section((DOCS / "distributed.md").read_text(encoding="utf-8"), "Parameter servers")
    reader.names[r"\$IMAGE"] = base(f"tf-{version}-cpu-debian").tag
    if program == "train_ps_keras.py":
        reader.names.update({"train_ps.py": program, "(?<=-chief) worker": ""})
    commands = page_commands(page)
    printed = reader.type(PageCommand("\n".join(command.line for command in commands)))
    assert LEARNT.search(printed), printed


def _same_lock(reader: Reader, name: str) -> bool:
    lock = EXAMPLES / name / f"{name}.lock.txt"
    return lock.read_bytes() == (reader.folder / lock.relative_to(ROOT)).read_bytes()


def test_the_tutorials_model_is_converted_to_onnx(base: Bases, reader: Reader) -> None:
    base("tf-2.2-cpu-debian")
    tutorial = page_commands((DOCS / "tutorial.md").read_text(encoding="utf-8"))
    pages = section((DOCS / "frameworks.md").read_text(encoding="utf-8"), "ONNX")
    for command in (*tutorial[:2], *page_commands(pages)[:2]):
        reader.see(command)
    assert (reader.folder / "runs" / "digits.onnx").stat().st_size > 0
    assert _same_lock(reader, "onnx")


def test_the_notebook_shows_tensorboard(base: Bases, reader: Reader) -> None:
    base("tf-2.2-cpu-debian")
    page = section((DOCS / "tensorboard.md").read_text(encoding="utf-8"), "In a notebook")
    extend, _, execute = page_commands(page)
    for command in (extend, execute):
        reader.see(command)
    notebook = json.loads((reader.folder / "runs" / "digits.ipynb").read_text(encoding="utf-8"))
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", ())]
    losses = json.loads("".join(outputs[0]["data"]["text/plain"]))
    assert losses[-1] < losses[0] / 2
    frames = ["".join(o["data"]["text/html"]) for o in outputs if "text/html" in o.get("data", ())]
    assert len(frames) == 2
    assert all("<iframe" in frame and "url.port = 6006" in frame for frame in frames)
    (listed, _) = ["".join(output["text"]) for output in outputs if "text" in output]
    assert "- port 6006: logdir /tmp/" in listed
    assert _same_lock(reader, "notebook")


def test_the_page_of_keras_3(base: Bases, reader: Reader) -> None:
    """Two ranks learn together under Keras 3, and with tf-keras."""
    text = (DOCS / "migrating.md").read_text(encoding="utf-8")
    page = section(text, "From TensorFlow 2.15 and Horovod to 2.16 and newer")
    tag = base("tf-2.21-cpu-debian").tag
    reader.names["imgbuild/tensorflow:2.21-cpu"] = tag
    commands = page_commands(page)
    assert [LEARNT.search(reader.see(command)) is not None for command in commands] == [True, True]
