"""An image for arm64: built and tested on an emulator, unless the machine is for arm64."""

import os
import subprocess

import pytest

from imgbuild.engine.client import Engine
from imgbuild.inputs.bootstrap import EMULATOR
from imgbuild.matrix.images import all_images, for_other_architecture
from imgbuild.matrix.load import load_matrix
from imgbuild.publish.contents import check_contents
from support.checkout import Checkout

ARM64 = "linux/arm64"
#: With MPI, Horovod, the old Keras, and the package of TensorFlow that has another name on arm64.
IMAGE, TAG = "tf-2.15-cpu-debian", "imgbuild/tensorflow:2.15-cpu-arm64"
PROGRAM = """
import platform, horovod.tensorflow, tensorflow as tf
print(platform.machine(), tf.__version__, float(tf.reduce_sum(tf.ones((2, 3)))))
"""


def _runs_arm64() -> bool:
    try:
        return subprocess.run(["arch-test", "arm64"], check=False).returncode == 0
    except FileNotFoundError:
        return False


@pytest.fixture(scope="module")
def emulator() -> None:
    """Let this machine run programs for arm64. The kernel knows the emulator until it restarts.

    Where services may not start, the package registers nothing.
    """
    if _runs_arm64():
        return
    if os.geteuid() != 0:
        pytest.skip("an emulator is registered by root")
    subprocess.run(["apt-get", "install", "-y", *EMULATOR], check=True)
    if not os.path.ismount("/proc/sys/fs/binfmt_misc"):
        mount = ["mount", "-t", "binfmt_misc", "binfmt_misc", "/proc/sys/fs/binfmt_misc"]
        subprocess.run(mount, check=True)
    subprocess.run(["update-binfmts", "--enable", "qemu-aarch64"], check=True)
    assert _runs_arm64()


@pytest.fixture(scope="module")
def built(checkout: Checkout, emulator: None) -> Checkout:
    """Give the checkout once its engine has the image, whose suites have passed."""
    del emulator
    checkout.run("doctor", IMAGE, "--platform", ARM64, "--write", timeout=1800)
    (made,) = checkout.json("build", IMAGE, "--platform", ARM64, timeout=3 * 3600)
    assert made["image"] == f"{IMAGE}-arm64"
    return checkout


@pytest.mark.nightly
@pytest.mark.timeout(4 * 3600)
def test_an_image_passes_all_its_suites(built: Checkout, engine: Engine) -> None:
    (report,) = built.json("test", IMAGE, "--platform", ARM64)
    assert {suite["verdict"] for suite in report["suites"]} == {"passed"}
    assert {"horovod", "distribute", "parameter_servers", "tensorboard", "tensorflow"} <= {
        suite["suite"] for suite in report["suites"]
    }
    stored = engine.inspect(TAG)
    assert stored is not None
    assert stored.platform == ARM64
    assert stored.labels["imgbuild.name"] == f"{IMAGE}-arm64"


@pytest.mark.nightly
def test_an_image_holds_what_its_tags_say(built: Checkout, engine: Engine) -> None:
    """So `push` publishes it, for both platforms."""
    (made,) = built.json("build", IMAGE, "--platform", "linux/amd64", "--no-test")
    matrix = load_matrix(built.root / "matrix.yaml")
    usual = next(image for image in all_images(matrix) if image.name == IMAGE)
    other = for_other_architecture(usual)
    assert other
    check_contents(usual, made["image_id"], engine)
    stored = engine.need(TAG)
    check_contents(other, stored.id, engine)


@pytest.mark.nightly
def test_an_image_runs_under_its_own_tag(built: Checkout) -> None:
    said = built.docker("run", "--rm", TAG, "python", "-c", PROGRAM).stdout
    assert said.split() == ["aarch64", "2.15.1", "6.0"]
    usual = built.json("build", IMAGE, "--platform", "linux/amd64", "--dry-run")
    assert [item["image"] for item in usual] == [IMAGE]


@pytest.mark.nightly
@pytest.mark.timeout(2 * 3600)
def test_the_same_layers_are_made_again(built: Checkout) -> None:
    """Without any step of the first build, and without its wheel of Horovod."""
    (compared,) = built.json("verify", "--rebuild", f"{IMAGE}-arm64", timeout=2 * 3600)
    assert compared["same"]
    assert all(layer["same"] for layer in compared["layers"])
