"""Bills of materials of images whose program prints what a test says, by the schema itself."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

from imgbuild.core.errors import CheckFailedError
from imgbuild.core.project import Project
from imgbuild.core.settings import Settings
from imgbuild.dockerfile.labels import INPUT_PARTS, pin_labels
from imgbuild.engine.types import ARM64, StoredImage
from imgbuild.inputs.build_inputs import list_downloads
from imgbuild.locks.constraints import package_bounds
from imgbuild.locks.lockfile import read_lock
from imgbuild.matrix.images import Image, for_other_architecture
from imgbuild.matrix.model import Matrix
from imgbuild.plan.digest import SHORT, InputReader
from imgbuild.publish import sbom
from imgbuild.suites.container import PROGRAM, ImageContents
from support.fake_engine import FakeEngine

ID, CPU, CONDA = "sha256:id", "tf-2.2-cpu-debian", "tf-1.10-cpu-ubuntu"
DEBIAN = "Debian GCC Maintainers <debian-gcc@lists.debian.org>"
SITE = "/opt/python/lib/python3.6/site-packages"
INSTALLED: dict[str, Any] = {
    "system": [
        ["libstdc++6", "12.2.0-14+deb12u1", "amd64", "gcc-12", "12.2.0-14+deb12u1", DEBIAN],
        ["git", "1:2.39.5-0+deb12u3", "amd64", "git", "1:2.39.5-0+deb12u3", "Jonathan <j@d.org>"],
        ["libcudnn7", "7.6.3.30-1+cuda10.1", "amd64", "cudnn", "7.6", "cudatools@nvidia.com"],
        ["libhwloc-plugins", "2.9.0-1+imgbuild", "amd64", "hwloc", "2.9.0-1+imgbuild", "imgbuild"],
    ],
    "python": [
        ["horovod", "0.19.5", "Apache Software License", SITE],
        ["numpy", "1.18.5", "BSD", SITE],
        ["six", "1.16.0", "MIT", "/opt/miniconda/lib/python3.7/site-packages"],
        ["tensorflow", "2.2.3+imgbuild", "", SITE],
        ["tensorflow-cpu", "2.2.3", "Apache-2.0", SITE],
        ["typing-extensions", "4.1.1", "PSF", "/usr/lib/python3/dist-packages"],
        ["typing_extensions", "4.1.1", "PSF", SITE],
    ],
    "conda": [],
}
CONTENTS = ImageContents(
    (), False, False, "3.6.15", "mpirun (Open MPI) 4.1.4\n", (), ("debian", "12")
)
MPI = {
    "2021.8.0": "Intel(R) MPI Library for Linux* OS, Version 2021.8 Build 20221129",
    "2018.3.222": "Intel(R) MPI Library for Linux* OS, Version 2018 Update 3 Build 20180411",
}
Sbom = Callable[..., str]


def parts(image: Image, project: Project) -> dict[str, str]:
    """Return what the label says of an image that this checkout builds."""
    reader = InputReader(project)
    found = {title: reader.digest(f"locks/{one}") for title, one in image.titled_locks.items()}
    found["stage horovod-source"] = reader.dockerfile(image).stages["horovod-source"].digest
    of_arm64 = image.architecture == "arm64"
    name = image.name.removesuffix("-arm64")
    constraints = f"dockerfiles/{name}/constraints{'-arm64' if of_arm64 else ''}.txt"
    found[constraints] = reader.digest(constraints)
    for context, files in list_downloads(image, project.locks, Settings()).contexts.items():
        found |= {f"download {context}/{one.name}": one.sha256 for one in files}
    return {name: digest[:SHORT] for name, digest in found.items()}


def stored(image: Image, inputs: dict[str, str], **labels: str) -> StoredImage:
    base = {"base.name": "debian:12", "base.digest": f"sha256:{'a' * 64}", "revision": "c" * 40}
    own = {f"org.opencontainers.image.{name}": value for name, value in base.items()}
    own |= {**pin_labels(image), INPUT_PARTS: json.dumps({"form": 2, "parts": inputs}), **labels}
    return StoredImage(ID, image.tags, own, created=1793491200, layers=("sha256:l1", "sha256:l2"))


@pytest.fixture
def made(project: Project, matrix: Matrix, monkeypatch: pytest.MonkeyPatch) -> Sbom:
    """Return what makes the SBOM of an image whose programs print this."""

    def make(image: StoredImage, installed: object = INSTALLED, **contents: object) -> str:
        def execute(_host: object, _container: str, command: Sequence[str]) -> str:
            if command[-1] == PROGRAM.read_text("utf-8"):
                return json.dumps({**asdict(CONTENTS), **contents})
            assert command[-1] == sbom.PROGRAM.read_text("utf-8")
            return installed if isinstance(installed, str) else json.dumps(installed)

        monkeypatch.setattr("imgbuild.suites.container.docker_exec", execute)
        monkeypatch.setattr("imgbuild.suites.container.require_docker_client", lambda: None)
        engine = FakeEngine([image])
        try:
            return sbom.make_sbom("it", image, engine, project, matrix)
        finally:
            assert engine.running == {}

    return make


def components(text: str) -> dict[str, dict[str, Any]]:
    """Return the components by purl, of a document that the schema allows."""
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    found: dict[str, dict[str, Any]] = {one["purl"]: one for one in json.loads(text)["components"]}
    assert [*found] == [PackageURL.from_string(purl).to_string() for purl in found]
    assert len(found) == len(json.loads(text)["components"])
    return found


def facts(component: dict[str, Any]) -> dict[str, str]:
    return {one["name"].partition(":")[2]: one["value"] for one in component["properties"]}


def hashes(component: dict[str, Any]) -> set[str]:
    references = component.get("externalReferences", ())
    return {one["content"] for reference in references for one in reference["hashes"]}


def test_everything_has_its_purl_licence_hashes_and_origin(
    images: dict[str, Image], project: Project, made: Sbom
) -> None:
    image = images[CPU]
    text = made(stored(image, parts(image, project)))
    found = components(text)
    system = "distro=debian-12"
    assert {*found} == {
        f"pkg:oci/debian@sha256:{'a' * 64}",
        "pkg:generic/python@3.6.15",
        "pkg:generic/openmpi@4.1.4",
        f"pkg:deb/debian/gcc-12@12.2.0-14%2Bdeb12u1?arch=source&{system}",
        f"pkg:deb/debian/libstdc%2B%2B6@12.2.0-14%2Bdeb12u1?arch=amd64&{system}&upstream=gcc-12",
        f"pkg:deb/debian/git@1:2.39.5-0%2Bdeb12u3?arch=amd64&{system}",
        f"pkg:deb/debian/git@1:2.39.5-0%2Bdeb12u3?arch=source&{system}",
        f"pkg:deb/debian/libcudnn7@7.6.3.30-1%2Bcuda10.1?arch=amd64&{system}&upstream=cudnn%407.6",
        f"pkg:deb/debian/cudnn@7.6?arch=source&{system}",
        f"pkg:deb/imgbuild/libhwloc-plugins@2.9.0-1%2Bimgbuild?arch=amd64&{system}&upstream=hwloc",
        "pkg:pypi/horovod@0.19.5",
        "pkg:pypi/numpy@1.18.5",
        "pkg:pypi/six@1.16.0",
        "pkg:generic/tensorflow@2.2.3%2Bimgbuild",
        "pkg:pypi/tensorflow-cpu@2.2.3",
        "pkg:pypi/typing-extensions@4.1.1",
    }
    lock = read_lock(project.locks / image.lock_name)
    assert hashes(found["pkg:pypi/numpy@1.18.5"]) == {*lock.hashes["numpy"]}
    assert image.horovod
    assert hashes(found["pkg:pypi/horovod@0.19.5"]) == {image.horovod.sha256}
    (cpython,) = (pin.sha256 for pin in image.pins if pin.component == "python")
    assert hashes(found["pkg:generic/python@3.6.15"]) == {cpython}
    # It is not the lock's six.
    assert lock.versions["six"] != "1.16.0"
    assert hashes(found["pkg:pypi/six@1.16.0"]) == set()
    assert facts(found["pkg:pypi/six@1.16.0"])["origin"].startswith("/opt/miniconda/")
    assert found["pkg:pypi/tensorflow-cpu@2.2.3"]["licenses"] == [{"expression": "Apache-2.0"}]
    assert facts(found["pkg:pypi/numpy@1.18.5"])["versions"] == "==1.18.5"
    assert found["pkg:pypi/numpy@1.18.5"]["licenses"] == [{"license": {"name": "BSD"}}]
    by_name = {one["name"]: facts(one) for one in found.values()}
    assert by_name["libcudnn7"]["part"] == "cudnn"
    for name in ("libhwloc-plugins", "tensorflow"):
        assert by_name[name]["origin"].startswith("stand-in: ")
    metadata = json.loads(text)["metadata"]
    assert metadata["timestamp"] == "2026-11-01T00:00:00Z"
    layers = [one["value"] for one in metadata["component"]["properties"] if "layer" in one["name"]]
    assert layers == ["sha256:l1", "sha256:l2"]
    # An extension is based on the image that it extends.
    base = {"org.opencontainers.image.base.name": f"{image.repository}:2.2-cpu"}
    extended = stored(image, parts(image, project), **base, **{"imgbuild.extends": CPU})
    on = components(made(extended))[f"pkg:generic/tensorflow@sha256:{'a' * 64}"]
    assert facts(on) == {"origin": CPU, "part": "base"}


def test_what_the_labels_do_not_confirm_has_no_hashes(
    images: dict[str, Image], project: Project, made: Sbom
) -> None:
    image = images[CPU]
    other = dict.fromkeys(parts(image, project), "0" * SHORT)
    for one in (stored(image, other), StoredImage(ID, labels={}, created=1793491200)):
        assert not any(map(hashes, components(made(one)).values()))


def test_the_base_of_a_label_is_read_in_linear_time(images: dict[str, Image], made: Sbom) -> None:
    """The size of a label is its image's choice."""
    name = f"registry.example.org:5000/ml/{'a' * 1_000_000}:1@sha256:d"
    labels = {"org.opencontainers.image.base.name": name}
    document = made(stored(images[CPU], {}, **labels))
    assert f"pkg:oci/{'a' * 1_000_000}@sha256:{'a' * 64}" in document


@pytest.mark.parametrize("name", [CONDA, "tf-2.2-cpu-debian-intelmpi", "tf-2.0-gpu-ubuntu"])
def test_pythons_of_conda_and_other_mpis_have_their_hashes(
    images: dict[str, Image], project: Project, made: Sbom, name: str
) -> None:
    image, version = images[name], images[name].version_of("mpi")
    mpi = MPI.get(version, f"mpirun (Open MPI) {version}")
    conda = [["python", "3.6.2", "PSF", "hca45abc_19"]] if name == CONDA else []
    text = made(stored(image, parts(image, project)), {**INSTALLED, "conda": conda}, mpirun=mpi)
    found = components(text)
    if conda:
        assert hashes(found["pkg:conda/python@3.6.2?build=hca45abc_19"]) == {
            "0b77f7c1f88f9b9dff2d25ab2c65b76ea37eb2fbc3eeab59e74a47b7a61ab20c"
        }
    (running,) = (one for one in found.values() if facts(one).get("part") == "mpi")
    if image.mpi.origin == "index":
        lock = read_lock(project.locks / str(image.mpi_lock_name))
        assert hashes(running) == {*lock.hashes[image.mpi.runtime.partition("==")[0]]}
    elif image.mpi.origin == "source":
        (pin,) = (pin for pin in image.pins if pin.component == "mpi")
        assert hashes(running) == {pin.sha256}


def test_sbom_names_another_platform(images: dict[str, Image], made: Sbom) -> None:
    image = for_other_architecture(images["tf-2.15-cpu-debian"])
    assert image
    platforms = []
    for own in (stored(image, {}), replace(stored(image, {}), platform=ARM64)):
        document = json.loads(made(own))
        platforms.append(facts(document["metadata"]["component"]).get("platform"))
    assert platforms == [None, ARM64]


def test_an_image_for_arm64_has_the_bounds_of_its_own_constraints(
    images: dict[str, Image], project: Project, made: Sbom
) -> None:
    image = for_other_architecture(images["tf-2.15-cpu-debian"])
    assert image
    own = replace(stored(image, parts(image, project)), platform=ARM64)
    numpy = components(made(own))["pkg:pypi/numpy@1.18.5"]
    assert facts(numpy)["versions"] == package_bounds(image, project.locks)["numpy"]


def test_the_same_image_has_the_same_bytes_and_another_another_number(
    images: dict[str, Image], project: Project, made: Sbom
) -> None:
    image = stored(images[CPU], parts(images[CPU], project))
    text, elsewhere = made(image), replace(image, id="sha256:as-containerd-has-it", tags=(), size=5)
    assert text == made(elsewhere)
    # cosign's predicate has the keys in an order of its own.
    document = json.loads(text)
    assert sbom.format_sbom({name: document[name] for name in reversed(document)}) == text
    changed = made(replace(image, labels={**image.labels, "more": "1"}))
    assert json.loads(changed)["serialNumber"] != document["serialNumber"]


@pytest.mark.parametrize(
    "answer",
    [
        *("", "[" * 100_000, "{}"),
        *(
            {**INSTALLED, "python": packages}
            for packages in (
                [["six", "1.17.0", "MIT"]],
                [["six", 1, "MIT", SITE]],
                [["six\u001b[2J", "1.17.0", "MIT", SITE]],
                [["six", "1.17.0\n", "MIT", SITE]],
                [["six", "1.17.0", "M" * 501, SITE]],
                [["six", f"1.{n}", "MIT", SITE] for n in range(20_001)],
            )
        ),
        {**INSTALLED, "system": [["../x", "1", "amd64", "x", "1", "me"]]},
        {**INSTALLED, "system": None},  # another distribution
    ],
    ids=[
        "empty",
        "deep",
        "none",
        "short",
        "number",
        "escape",
        "line",
        "long",
        "many",
        "name",
        "dpkg",
    ],
)
def test_an_image_that_does_not_say_what_is_in_it(
    images: dict[str, Image], made: Sbom, answer: object
) -> None:
    said = "The contents of .* cannot be read|has no dpkg-query"
    with pytest.raises(CheckFailedError, match=said):
        made(stored(images[CPU], {}), answer)
