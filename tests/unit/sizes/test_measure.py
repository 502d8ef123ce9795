"""From the engine to the numbers of one image and of a family, and what is remembered of them."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_engine import FakeEngine
from hand_made import docker_archive, oci_archive, tar

from imgbuild.engine.types import StoredImage
from imgbuild.sizes.components import NAMES, RULES, component_of
from imgbuild.sizes.family import Family, family, sharing
from imgbuild.sizes.measure import MeasuredImage, measure
from imgbuild.sizes.store import size_store

SITE = "opt/python/lib/python3.6/site-packages"
BASE = tar(
    ("var/lib/dpkg/info/libc6.list", b"/usr/lib/libc.so\n"),  # 17 bytes
    ("usr/lib/libc.so", b"1" * 100),
    ("etc/passwd", b"1" * 10),
)
PYTHON = tar(("opt/python/bin/python3", b"1" * 200))
RECORD = b"tensorflow/a.so,,\n"  # 18 bytes
TENSORFLOW = tar(
    (f"{SITE}/tensorflow_cpu-2.2.0.dist-info/RECORD", RECORD),
    (f"{SITE}/tensorflow/a.so", b"1" * 1000),
    (f"{SITE}/tensorflow/unlisted", b"1" * 50),
    ("etc/passwd", b"1" * 20),
    ("data/x", b"1" * 3),
)
HOROVOD = tar(("usr/lib/.wh.libc.so", b""), ("opt/impi/lib/libmpi.so", b"1" * 400))


@pytest.fixture
def engine() -> FakeEngine:
    images = {
        "sha256:a": docker_archive((BASE, PYTHON, TENSORFLOW), ("base", "RUN python", "COPY tf")),
        "sha256:b": oci_archive((BASE, TENSORFLOW, HOROVOD)),
    }
    made = FakeEngine([StoredImage(one) for one in images])
    made.archives = images
    return made


Measured = Callable[[str], MeasuredImage]


@pytest.fixture
def measured(engine: FakeEngine, tmp_path: Path) -> Measured:
    return lambda image_id: measure(image_id, "app", engine, size_store(tmp_path))


def test_every_byte_is_in_a_component_or_wasted(measured: Measured) -> None:
    image = measured("sha256:b")
    assert image.size == 127 + 1091 + 400
    assert image.components == {
        "TensorFlow": 1000,
        "MPI": 400,
        "packages": 18 + 50,
        "system": 17 + 20,
        "other": 3,
    }
    assert [(one.path, one.size) for one in image.wasted] == [
        ("etc/passwd", 10),
        ("usr/lib/libc.so", 100),
    ]
    assert image.waste == 110
    assert sum(image.components.values()) + image.waste == image.size


def test_every_byte_of_a_layer_is_in_a_component_or_wasted(measured: Measured) -> None:
    image = measured("sha256:b")
    assert image.components_of_layers == (
        {"system": 17},
        {"TensorFlow": 1000, "packages": 68, "system": 20, "other": 3},
        {"MPI": 400},
    )
    assert dict(image.waste_of_layers) == {0: 110}


def test_a_family_shares_layers_by_content_and_by_what_lies_below(measured: Measured) -> None:
    one, other = measured("sha256:a"), measured("sha256:b")
    assert (one.size, other.size) == (127 + 200 + 1091, 1618)
    # The layer of TensorFlow is the same in both, but over another one.
    assert family([one, other, one]) == Family(
        images=2,
        together=1418 + 1618,
        by_content=127 + 200 + 1091 + 400,
        by_chain=127 + 200 + 1091 + 1091 + 400,
    )
    assert sorted(sharing([one, other, one]).values()) == [1, 1, 2, 2]
    assert family([]) == Family(0, 0, 0, 0)


def test_a_second_time_nothing_is_read(engine: FakeEngine, measured: Measured) -> None:
    first = measured("sha256:a")
    again = measured("sha256:a")
    assert engine.calls.count("save") == 1
    assert again == first
    assert again.layers[1].made_by == "RUN python"


def test_a_layer_that_two_images_have_is_remembered_once(
    measured: Measured, tmp_path: Path
) -> None:
    measured("sha256:a")
    measured("sha256:b")
    assert len(list((tmp_path / "sizes" / "layers").iterdir())) == 4


def _entries_of_another_kind(document: dict[str, object]) -> None:
    document["entries"] = [["a", "f", -1, "", ""]]


def _another_name(document: dict[str, object]) -> None:
    document["name"] = "other.json.gz"


def _another_format(document: dict[str, object]) -> None:
    document["format"] = 0


@pytest.mark.parametrize("kind", ["layers", "images"])
@pytest.mark.parametrize(
    "damage",
    [_another_name, _another_format, _entries_of_another_kind, dict.clear],
)
def test_a_remembered_file_that_is_not_what_it_should_be_is_read_again(
    engine: FakeEngine,
    measured: Measured,
    tmp_path: Path,
    kind: str,
    damage: Callable[[dict[str, object]], None],
) -> None:
    first = measured("sha256:a")
    for path in (tmp_path / "sizes" / kind).iterdir():
        document = json.loads(gzip.decompress(path.read_bytes()))
        damage(document)
        if kind == "images" and damage is _entries_of_another_kind:
            document["layers"] = [["only one"]]
        path.write_bytes(gzip.compress(json.dumps(document).encode()))
    assert measured("sha256:a") == first
    assert engine.calls.count("save") == 2
    assert measured("sha256:a") == first
    assert engine.calls.count("save") == 2  # mended


@pytest.mark.parametrize("kind", ["layers", "images"])
def test_every_broken_byte_of_a_remembered_file_is_noticed(
    engine: FakeEngine, measured: Measured, tmp_path: Path, kind: str
) -> None:
    first = measured("sha256:a")
    path = min((tmp_path / "sizes" / kind).iterdir())
    whole = path.read_bytes()
    for position in range(10, len(whole), 7):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0xFF]) + whole[position + 1 :])
        assert measured("sha256:a") == first
        path.write_bytes(whole[:position])
        assert measured("sha256:a") == first
    tries = len(range(10, len(whole), 7))
    assert engine.calls.count("save") == 1 + 2 * tries


@pytest.mark.parametrize(
    ("owner", "path", "component"),
    [
        ("python:tensorflow-cpu-estimator", "x", "TensorFlow"),
        ("python:tensorboard-plugin-wit", "x", "TensorBoard"),
        ("python:scipy", "x", "NumPy, SciPy"),
        ("python:pip", "opt/python/bin/pip", "packages"),
        ("deb:libopenmpi3", "usr/lib/libmpi.so", "MPI"),
        ("deb:libicu72", "x", "MPI"),
        ("deb:cuda-cudart-10-1", "usr/local/cuda-10.1/lib64/libcudart.so", "CUDA"),
        ("", "usr/local/cuda-10.1/lib64/x", "CUDA"),
        ("deb:libperl5.36", "x", "git, perl"),
        ("deb:libcurl3-gnutls", "usr/lib/x", "system"),
        ("", "opt/python/lib/libpython3.6m.so", "Python"),
        ("", "opt/python/lib/python3.6/site-packages/x/y", "packages"),
        ("", "srv/x", "other"),
    ],
)
def test_what_a_file_is_for(owner: str, path: str, component: str) -> None:
    assert component_of(owner, path) == component


def test_every_component_is_there_once() -> None:
    assert len({*NAMES}) == len(NAMES) == len(RULES) + 1
