"""Selections: versions, variants, stacks, MPI and names, and the error where nothing matches."""

from dataclasses import replace
from typing import Any

import pytest
from packaging.version import Version

from imgbuild.core.errors import InputError
from imgbuild.matrix.known_names import parse_known_name
from imgbuild.matrix.model import Matrix
from imgbuild.matrix.selection import Selection, select_images
from support.releases import release_of

DEBIAN = "debian"
NAMED = Selection(names=("tf-2.2-cpu-debian",))


def _names(matrix: Matrix, selection: Selection) -> list[str]:
    return [image.name for image in select_images(matrix, selection)]


@pytest.mark.parametrize(
    ("selection", "names"),
    [
        # The default version, variant, stack and MPI; each counts where it has an image.
        (Selection(), "2.2-cpu-debian"),
        (Selection(gpu=True), "2.2-gpu-ubuntu"),
        (Selection(mpi="intelmpi"), "2.2-cpu-debian-intelmpi"),
        (Selection(("2.3.0",), stack="ubuntu"), "2.3-cpu-ubuntu"),
        (Selection(("2.3", "1.10"), stack=DEBIAN), "1.10-cpu-debian 2.3-cpu-debian"),
        (Selection(("2.3",), cpu=True, gpu=True), "2.3-gpu-ubuntu 2.3-cpu-debian"),
        (Selection(("1.12",), mpi="intelmpi"), "1.12-cpu-debian-intelmpi"),
        # On Ubuntu 16.04 Intel's is the usual MPI.
        (Selection(("1.13",), mpi="intelmpi"), "1.13-cpu-ubuntu"),
        # Without defaults it is all that fits.
        (
            Selection(("1.12",), everything=True),
            "1.12-cpu-ubuntu 1.12-gpu-ubuntu 1.12-cpu-debian 1.12-cpu-debian-intelmpi",
        ),
        (
            Selection(names=(*NAMED.names, "tf-1.10-cpu-ubuntu", *NAMED.names)),
            "1.10-cpu-ubuntu 2.2-cpu-debian",
        ),
    ],
)
def test_selected_images(matrix: Matrix, selection: Selection, names: str) -> None:
    assert _names(matrix, selection) == [f"tf-{name}" for name in names.split()]


@pytest.mark.parametrize("words", [{}, {"gpu": True}, {"stack": "ubuntu"}, {"everything": True}])
def test_the_latest_is_the_newest_that_fits(matrix: Matrix, words: dict[str, Any]) -> None:
    fits = select_images(matrix, Selection(**{**words, "everything": True}))
    newest = max((image.minor for image in fits), key=Version)
    assert _names(matrix, Selection(("latest",), **words)) == _names(
        matrix, Selection((newest,), **words)
    )
    assert _names(matrix, Selection(names=("latest-gpu",))) == _names(
        matrix, Selection(("latest",), gpu=True)
    )


@pytest.mark.parametrize(
    ("selection", "facts"),
    [
        (Selection(("1.1",)), "--tf '1.1' 1.10.0, 1."),
        (Selection(("2.2",), mpi="lam"), "--mpi 'lam' intelmpi or openmpi"),
        (Selection(("2.2",), cpu=True, gpu=True, stack=DEBIAN), "2.2 --gpu --stack debian"),
        (
            Selection(gpu=True, stack=DEBIAN, mpi="intelmpi", everything=True),
            "--mpi intelmpi : cpu-ubuntu, gpu-ubuntu, cpu-debian, gpu-debian, cpu-debian-intelmpi,",
        ),
        (replace(NAMED, tensorflow=("2.2",)), "--tf"),
        (replace(NAMED, mpi="openmpi"), "--mpi"),
        (Selection(names=(*NAMED.names, "9.9-gpu")), "--tf '9.9'"),
        (Selection(names=("azureml-tensorflow-2.22-gpu",)), "AzureML-TensorFlow-2.2-GPU,"),
        # There were images with the documented pins.
        (Selection(names=("tf-2.1-gpu-ubuntu-as-documented",)), "tf-2.1-gpu-ubuntu,"),
    ],
)
def test_a_selection_without_images_names_the_nearest(
    matrix: Matrix, selection: Selection, facts: str
) -> None:
    with pytest.raises(InputError) as caught:
        select_images(matrix, selection)
    assert all(fact in str(caught.value) for fact in facts.split())


def test_several_images_without_a_default_are_named(matrix: Matrix) -> None:
    """Two stacks have a GPU image, and neither is the default one."""
    stacks = {**matrix.stacks, "other": matrix.stacks["ubuntu"]}
    gpu = next(row for row in matrix.images if row.tensorflow == "2.2.0" and row.cuda)
    rows = (*matrix.images, gpu.model_copy(update={"stack": "other"}))
    several = matrix.model_copy(update={"stacks": stacks, "images": rows})
    with pytest.raises(InputError, match=r"fit: tf-2.2-gpu-ubuntu, tf-2.2-gpu-other"):
        select_images(several, Selection(("2.2",), gpu=True))
    assert _names(several, Selection(("2.2",))) == ["tf-2.2-cpu-debian"]


def test_a_matrix_without_a_default_version(matrix: Matrix) -> None:
    defaults = matrix.defaults.model_copy(update={"tensorflow": None})
    without = matrix.model_copy(update={"defaults": defaults})
    with pytest.raises(InputError, match="Select images with --tf VERSION or --all"):
        select_images(without, Selection())
    assert _names(without, Selection(("2.2",))) == ["tf-2.2-cpu-debian"]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("AzureML-TensorFlow-2.2-GPU", "tf-2.2-gpu-ubuntu"),
        ("azureml_tensorflow 2.2 gpu", "tf-2.2-gpu-ubuntu"),
        (f"{release_of('2.2')}-cpu-intelmpi", "tf-2.2-cpu-debian-intelmpi"),
        ("imgbuild/tensorflow:2.1-gpu-ubuntu", "tf-2.1-gpu-ubuntu"),
        ("2.2", "tf-2.2-cpu-debian"),
        ("2.2-gpu", "tf-2.2-gpu-ubuntu"),
        ("tensorflow/tensorflow:1.15.2-gpu-py3", "tf-1.15-gpu-ubuntu"),
        ("tensorflow/tensorflow:2.2.0", "tf-2.2-cpu-debian"),
        ("tensorflow/tensorflow:2.2.0rc1-gpu-py3-jupyter", "tf-2.2-gpu-ubuntu"),
        ("docker.io/tensorflow/tensorflow:1.13.1-py3", "tf-1.13-cpu-debian"),
        ("tensorflow/tensorflow:2.11.0-gpu", "tf-2.11-gpu-debian"),
        ("horovod/horovod:0.19.1-tf2.1.0-torch-mxnet1.6.0-py3.6-gpu", "tf-2.1-gpu-ubuntu"),
        ("horovod/horovod:0.20.0-tf2.3.0-torch1.6.0-mxnet1.5.0-py3.7-cpu", "tf-2.3-cpu-debian"),
        (
            "horovod/horovod:0.20.0-tf2.3.0-torch1.6.0-mxnet1.6.0.post0-py3.7-cuda10.1",
            "tf-2.3-gpu-ubuntu",
        ),
        ("horovod/horovod-cpu:0.28.1-tf2.11.0-torch1.13.1-py3.9", "tf-2.11-cpu-debian"),
        ("AzureML-tensorflow-2.5-ubuntu20.04-py38-cuda11-gpu:27", "tf-2.5-gpu-debian"),
        ("AzureML-tensorflow-2.4-ubuntu18.04-py37-cpu-inference", "tf-2.4-cpu-debian"),
        ("mcr.microsoft.com/azureml/curated/tensorflow-2.16-cuda12:11", "tf-2.16-gpu-debian"),
    ],
)
def test_an_image_is_found_by_its_other_names(matrix: Matrix, text: str, name: str) -> None:
    assert _names(matrix, Selection(names=(text,))) == [name]


@pytest.mark.parametrize(
    "text", ["tensorflow/tensorflow", "tensorflow/tensorflow:latest-gpu-jupyter"]
)
def test_the_newest_by_an_official_name(matrix: Matrix, text: str) -> None:
    variant = "gpu" if "gpu" in text else "cpu"
    newest = _names(matrix, Selection(("latest",), gpu=variant == "gpu", cpu=variant == "cpu"))
    assert _names(matrix, Selection(names=(text,))) == newest


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("tensorflow/tensorflow:1.4.0-gpu-py3", "tf-1.10-gpu-ubuntu"),
        ("tensorflow/tensorflow:2.99.0", "tf-2.21-cpu-debian"),
        ("mcr.microsoft.com/azureml/curated/tensorflow-1.9-gpu:1", "tf-1.10-gpu-ubuntu"),
    ],
)
def test_another_version_is_refused_with_the_nearest(matrix: Matrix, text: str, first: str) -> None:
    with pytest.raises(InputError, match=rf"Most similar: {first},"):
        select_images(matrix, Selection(names=(text,)))


def test_a_variant_that_is_missing_is_no_other(matrix: Matrix) -> None:
    with pytest.raises(InputError, match=r"TensorFlow 2\.4 fits --gpu.*tf-2\.4-cpu-debian"):
        select_images(matrix, Selection(names=("tensorflow/tensorflow:2.4.1-gpu",)))


@pytest.mark.parametrize(
    "text",
    [
        "tensorflow/tensorflow:nightly",
        "tensorflow/serving:2.2.0",
        "someone/tensorflow:2.2.0",
        "horovod/horovod:0.28.1",
        "mcr.microsoft.com/azureml/openmpi3.1.2-ubuntu18.04",
        "tensorflow/tensorflow:2.2.0 -v /:/host",
    ],
)
def test_a_name_without_a_version_of_tensorflow_is_none(matrix: Matrix, text: str) -> None:
    assert parse_known_name(text) is None
    with pytest.raises(InputError, match="no such image in the matrix"):
        select_images(matrix, Selection(names=(text,)))


def test_every_alias_is_an_image_s(matrix: Matrix) -> None:
    assert {*matrix.aliases} <= {*_names(matrix, Selection(everything=True, stack="ubuntu"))}
