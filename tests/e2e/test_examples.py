"""The examples, run as their README says: programs in the images, manifests as operators would."""

import json
import re
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest
from checkout import ROOT, Base, Checkout
from kubeflow import Cluster
from page_commands import IMGBUILD, PageCommand, Reader, page_commands, section

from imgbuild.inputs.build_inputs import uv_context
from imgbuild.project import cache_dir
from imgbuild.settings import load_settings

pytestmark = pytest.mark.nightly

EXAMPLES = ROOT / "examples"
DOCS = ROOT / "docs"
KERAS_TAG = "imgbuild-e2e/keras"
KERAS = (("1.10", "2.2.5"), ("1.15", "2.3.1"), ("2.2", "2.4.3"))
SYSTEM_BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
LEARNT = re.compile(r"learnt: y = (1\.9\d|2\.0\d) x \+ (0\.9\d|1\.0\d)")


@pytest.fixture(scope="session")
def image(base: Callable[[str], Base]) -> Callable[[str], str]:
    """Return how to have an image of the matrix by its first name."""

    def get(name: str) -> str:
        tag = base(f"tf-{name.partition(':')[2]}").tag
        assert tag == name
        return tag

    return get


@pytest.fixture
def cluster(checkout: Checkout, tmp_path: Path) -> Iterator[Cluster]:
    """Give a network for one job, a copy of the examples, and a folder that all may write to."""
    model = tmp_path / "model"
    model.mkdir()
    code = shutil.copytree(EXAMPLES, tmp_path / "examples")
    volumes = {"code": code, "imgbuild-model": model}
    model.chmod(0o777)
    # pytest's own folders are closed to others, and the containers' user is one.
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(folder.stat().st_mode | 0o011)
    with Cluster(checkout, tmp_path, volumes) as opened:
        yield opened


def _images(manifest: Path) -> set[str]:
    return set(re.findall(r"image: (\S+)", manifest.read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", ["mpijob", "mpijob-intelmpi"])
def test_mpijob_trains_on_two_workers(
    image: Callable[[str], str], cluster: Cluster, name: str
) -> None:
    manifest = EXAMPLES / "kubernetes" / f"{name}.yaml"
    for needed in _images(manifest):
        image(needed)
    printed = cluster.run_mpijob(manifest)
    (line,) = [line for line in printed.splitlines() if "learnt" in line]
    assert line.startswith("2 ranks ")
    assert LEARNT.search(line)


def test_tfjob_trains_with_a_parameter_server(
    image: Callable[[str], str], cluster: Cluster
) -> None:
    manifest = EXAMPLES / "kubernetes" / "tfjob.yaml"
    for needed in _images(manifest):
        image(needed)
    assert LEARNT.search(cluster.run_tfjob(manifest))


@pytest.mark.parametrize("version", ["1.10", "2.2"])
def test_function_is_sent_to_two_processes(
    image: Callable[[str], str], checkout: Checkout, version: str
) -> None:
    name = image(f"imgbuild/tensorflow:{version}-cpu-debian")
    volume = f"--volume={EXAMPLES}:/job:ro"
    ran = checkout.docker("run", "--rm", volume, name, "python", "/job/pickle_import_inside.py")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == ["slope 2.0: learnt 2.0", "slope -3.0: learnt -3.0"]


@pytest.fixture
def keras_tag(checkout: Checkout) -> Iterator[str]:
    yield KERAS_TAG
    checkout.docker("rmi", "--force", KERAS_TAG)


@pytest.mark.parametrize(("version", "keras"), KERAS)
def test_standalone_keras_is_added_to_an_image(
    image: Callable[[str], str], checkout: Checkout, keras_tag: str, version: str, keras: str
) -> None:
    folder, base = EXAMPLES / "keras-standalone", image(f"imgbuild/tensorflow:{version}-cpu-debian")
    bundle = load_settings(ROOT / "imgbuild.local.yaml").ca_bundle or SYSTEM_BUNDLE
    built = checkout.docker(
        *("build", f"--build-arg=BASE={base}", f"--build-arg=KERAS={keras}"),
        *(f"--secret=id=ca,src={bundle}", f"--tag={keras_tag}", str(folder)),
    )
    assert built.returncode == 0, built.stderr
    volume = f"--volume={folder}:/job:ro"
    ran = checkout.docker("run", "--rm", volume, keras_tag, "python", "/job/train.py")
    assert ran.returncode == 0, ran.stderr
    assert f"Keras {keras} on TensorFlow {version}." in ran.stdout
    assert LEARNT.search(ran.stdout)


def test_uv_keeps_to_the_packages_of_an_image(
    image: Callable[[str], str], checkout: Checkout, tmp_path: Path
) -> None:
    """As pip does, which the suite `pins` sees; no image has uv."""
    name = image("imgbuild/tensorflow:2.2-cpu-debian")
    with ZipFile(tmp_path / "numpy-9999-py3-none-any.whl", "w") as wheel:
        metadata = "Metadata-Version: 2.1\nName: numpy\nVersion: 9999\n"
        wheel.writestr("numpy-9999.dist-info/METADATA", metadata)
        wheel.writestr("numpy-9999.dist-info/WHEEL", "Wheel-Version: 1.0\n")
    volumes = {"/run/uv": uv_context(cache_dir()), "/run/wheels": tmp_path}
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
def reader(checkout: Checkout, tmp_path: Path) -> Iterator[Reader]:
    """Give a reader of the documentation with a copy of the examples; what it starts is removed."""
    mark = f"imgbuild-e2e-{uuid.uuid4().hex[:8]}"
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
        r"(extend -f \S+)": rf"\1 --no-test --tag {mark}:1",
        r"tensorflow-(onnx|notebook):\S+": f"{mark}:1",
        "--code": f"--job {mark} --code",
    }
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    yield Reader(checkout, tmp_path, names)
    started = checkout.docker("ps", "-aq", f"--filter=name={mark}").stdout.split()
    checkout.docker("rm", "--force", "--volumes", *started)
    for kind in ("network", "volume"):
        checkout.docker(kind, "rm", mark)
    checkout.docker("rmi", "--force", f"{mark}:1")


@pytest.mark.parametrize(
    ("version", "program"),
    [("1.15", "train_ps.py"), ("2.2", "train_ps.py"), ("2.15", "train_ps_keras.py")],
)
def test_the_page_of_parameter_servers(
    image: Callable[[str], str], reader: Reader, version: str, program: str
) -> None:
    """The page's commands in one shell, since later ones take variables of the first."""
    page = section((DOCS / "distributed.md").read_text(encoding="utf-8"), "Parameter servers")
    reader.names[r"\$IMAGE"] = image(f"imgbuild/tensorflow:{version}-cpu-debian")
    if program == "train_ps_keras.py":
        reader.names.update({"train_ps.py": program, "(?<=-chief) worker": ""})
    commands = page_commands(page)
    printed = reader.type(PageCommand("\n".join(command.line for command in commands)))
    assert LEARNT.search(printed), printed


def _same_lock(reader: Reader, name: str) -> bool:
    """Return whether an example's lock was taken as it is."""
    lock = EXAMPLES / name / f"{name}.lock.txt"
    return lock.read_bytes() == (reader.folder / lock.relative_to(ROOT)).read_bytes()


def test_the_tutorials_model_is_converted_to_onnx(
    image: Callable[[str], str], reader: Reader
) -> None:
    image("imgbuild/tensorflow:2.2-cpu-debian")
    tutorial = page_commands((DOCS / "tutorial.md").read_text(encoding="utf-8"))
    pages = section((DOCS / "frameworks.md").read_text(encoding="utf-8"), "ONNX")
    for command in (*tutorial[:2], *page_commands(pages)[:2]):
        reader.see(command)
    assert (reader.folder / "runs" / "digits.onnx").stat().st_size > 0
    assert _same_lock(reader, "onnx")


def test_the_notebook_shows_tensorboard(image: Callable[[str], str], reader: Reader) -> None:
    image("imgbuild/tensorflow:2.2-cpu-debian")
    page = section((DOCS / "tensorboard.md").read_text(encoding="utf-8"), "In a notebook")
    extend, _, execute = page_commands(page)
    for command in (extend, execute):
        reader.see(command)
    notebook = json.loads((reader.folder / "runs" / "digits.ipynb").read_text(encoding="utf-8"))
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", ())]
    losses = json.loads("".join(outputs[0]["data"]["text/plain"]))
    assert losses[-1] < losses[0] / 2
    frames = ["".join(o["data"]["text/html"]) for o in outputs if "text/html" in o.get("data", ())]
    assert [("<iframe" in frame, "url.port = 6006" in frame) for frame in frames] == 2 * [
        (True, True)
    ]
    (listed, _) = ["".join(output["text"]) for output in outputs if "text" in output]
    assert re.search(r"- port 6006: logdir /tmp/\w+ \(started 0:\d\d:\d\d ago; pid \d+\)", listed)
    assert _same_lock(reader, "notebook")
