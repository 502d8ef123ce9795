"""Images of one release for two platforms, pushed as from two machines to a real registry.

No processor is emulated: the tiny images for arm64 hold programs for this machine, on a base image
whose configuration says arm64. So BuildKit, the engine, the registry and the clients treat them as
images for arm64, and run them. Real images for arm64 are in `test_arm64.py`.
"""

import gzip
import json
import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from imgbuild.core.settings import Settings
from imgbuild.engine.types import AMD64, ARM64
from imgbuild.inputs.bootstrap import base_folder
from imgbuild.inputs.oci_layout import write_layout
from imgbuild.matrix.images import for_other_architecture
from imgbuild.matrix.tags import index_tag
from imgbuild.net.repository_client import RegistryClient
from imgbuild.publish.release_index import read_index
from support.copied_checkout import TEMPLATE, debian_image
from support.debian_program import debian_program, with_program
from support.network_namespace import forwarded
from support.own_dockerd import OwnDockerd, own_dockerd
from support.own_registry import OwnRegistry, own_registry
from support.publishing_project import TINY_TEMPLATE, PublishingProject, publishing_project
from support.releases import release_of

NAME = "tf-2.18-cpu-debian"
ONE = ("--tf", "2.18")
STEM = f"{release_of('2.18')}-cpu-py311-debian12-openmpi4.1.4"
MOVING = ("2.18-cpu", f"{release_of('2.18')}-cpu")
PASSWORD = "the-password-of-a-key"  # noqa: S105
#: The image says that it has the package of TensorFlow that it has on its platform.
BODY = TINY_TEMPLATE.replace('["tensorflow", ', '["{{ image.distribution }}", ')
#: As in the real template, one Dockerfile is for both platforms.
FOR_BOTH = """\
{% if arm64 %}
FROM final-amd64 AS final-arm64
RUN --network=none \\
    sed -i 's/"{{ image.distribution }}"/"{{ arm64.distribution }}"/' /usr/local/bin/python
LABEL {{ arm64_labels | join(" ") }}
FROM final-${TARGETARCH} AS final
{% endif %}
"""


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnRegistry]:
    with own_registry(tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    words = [str(debian_program("cosign", "sid") / "cosign"), "generate-key-pair"]
    environment = {**os.environ, "COSIGN_PASSWORD": PASSWORD}
    subprocess.run(words, cwd=folder, env=environment, check=True, capture_output=True)
    return folder / "cosign.key"


@pytest.fixture(scope="module")
def built(
    registry: OwnRegistry, dockerd: OwnDockerd, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PublishingProject]:
    """Give a checkout whose image passed for both platforms."""
    folder = tmp_path_factory.mktemp("publishing")
    body = BODY.replace("AS final", 'AS {{ "final-amd64" if arm64 else "final" }}')
    made = publishing_project(folder, dockerd.host, template=body)
    with (made.root / TEMPLATE).open("a", encoding="utf-8") as template:
        template.write(FOR_BOTH)
    made.render()
    _make_base_for_arm64(made.root, folder)
    made.set_up(publishing={"attempts": 3, "first_wait": 0.1})
    made.run("build", *ONE, "--platform", "all")
    variables = with_program(
        {"COSIGN_PASSWORD": PASSWORD, "PATH": os.environ["PATH"]}, debian_program("cosign", "sid")
    )
    with forwarded(registry.port, dockerd.pid):
        yield replace(made, variables=variables)


def _make_base_for_arm64(root: Path, folder: Path) -> None:
    """Copy the base image for amd64 as one for arm64."""
    image = debian_image(root)
    other = for_other_architecture(image)
    if other is None:  # the first image is for amd64 alone; any with the same system will do
        other = replace(image, architecture="arm64")
    bases = folder / "cache" / "imgbuild" / "base"
    source = bases / base_folder(image, Settings()).name
    index = json.loads((source / "index.json").read_text(encoding="utf-8"))
    manifest = json.loads(_blob(source, index["manifests"][0]["digest"]))
    rootfs = folder / "rootfs.tar"
    with rootfs.open("wb") as stream:
        stream.write(gzip.decompress(_blob(source, manifest["layers"][0]["digest"])))
    target = bases / base_folder(other, Settings()).name
    target.mkdir()
    write_layout(target, rootfs, name=other.base_name, epoch=0, architecture="arm64")


def _blob(layout: Path, digest: str) -> bytes:
    return (layout / "blobs" / digest.replace(":", "/")).read_bytes()


@pytest.fixture
def machines(built: PublishingProject, tmp_path: Path) -> dict[str, PublishingProject]:
    """Give a checkout and state folder for each platform, and one new repository."""
    repository = f"ml/{uuid.uuid4().hex}"
    machines = {}
    for platform in (AMD64, ARM64):
        folder = tmp_path / platform.replace("/", "-")
        folder.mkdir()
        machines[platform] = built.copied(folder, repository)
    return machines


@pytest.fixture
def client(
    machines: dict[str, PublishingProject], registry: OwnRegistry
) -> Iterator[RegistryClient]:
    with machines[AMD64].client(registry.host) as opened:
        yield opened


def _push(
    machines: dict[str, PublishingProject], registry: OwnRegistry, platform: str, *options: str
) -> dict[str, Any]:
    """Push the image for a platform; return what is said of it."""
    words = ("--platform", platform, "--json", *options)
    pushed = machines[platform].push(registry.host, *words, selection=ONE)
    (image,) = json.loads(pushed.stdout)["published"]
    return dict(image)


def test_two_machines_publish_one_index(
    machines: dict[str, PublishingProject],
    registry: OwnRegistry,
    client: RegistryClient,
    key: Path,
    dockerd: OwnDockerd,
) -> None:
    sign = ("--sign-key", str(key))
    first = _push(machines, registry, AMD64, *sign)
    assert first["tag"].startswith(f"{STEM}-2")
    assert client.head(MOVING[0]) == first["digest"]
    second = _push(machines, registry, ARM64, *sign)
    assert second["tag"] == f"{first['tag']}-arm64"
    digests = {AMD64: first["digest"], ARM64: second["digest"]}
    tags = (index_tag(first["tag"]), *MOVING)
    assert second["index"] == tags[0]
    for tag in tags:
        manifest = client.manifest(tag)
        assert manifest
        assert read_index(manifest) == digests
    assert client.head(f"{MOVING[0]}-arm64") == second["digest"]
    for platform in (AMD64, ARM64):
        assert _push(machines, registry, platform, *sign)["done"] == []

    project = machines[AMD64]
    reference = f"{client.name}:{MOVING[0]}"
    verified = project.json("verify", reference, "--key", str(key.with_name("cosign.pub")))
    assert {fact["problem"] for fact in verified} == {""}
    assert {fact["name"].partition(":")[0] for fact in verified} == {"index", AMD64, ARM64}
    checked = ("release", "list", "--from", client.name, "--check")
    project.run(*checked, "--key", str(key.with_name("cosign.pub")))
    listed = project.json("release", "list", "--from", client.name)
    assert {one["platform"]: one["digest"] for one in listed} == digests
    _require_other_clients(project, reference, digests, key, dockerd)
    _require_pull(project, registry, client, key)


def _require_pull(
    project: PublishingProject, registry: OwnRegistry, client: RegistryClient, key: Path
) -> None:
    """Require that another engine pulls both images, with the signed results of their suites."""
    with own_dockerd() as engine, forwarded(registry.port, engine.pid):
        other = replace(project, state=project.state.parent / "fresh", host=engine.host)
        trust = {"key": str(key.with_name("cosign.pub"))}
        other.set_up(engine={"host": engine.host}, verify=trust)
        source = ("--pull", "--from", client.name)
        for built in other.json("build", *ONE, "--platform", "all", *source):
            assert built["reason"] == f"pulled from {client.name}", built
            assert (built["state"], built["report"]) == ("done", None), "it was not tested again"
        listed = other.printed("images", "--quiet", "--filter=label=imgbuild.name").split()
        assert len({*listed}) == 2


def _require_other_clients(
    project: PublishingProject,
    reference: str,
    digests: dict[str, str],
    key: Path,
    dockerd: OwnDockerd,
) -> None:
    """Require that other programs find the image of a platform, and the index's signature."""
    skopeo = str(shutil.which("skopeo") or debian_program("skopeo", "sid") / "skopeo")
    oras = str(debian_program("oras", "sid") / "oras")
    cosign = str(debian_program("cosign", "sid") / "cosign")
    for platform, digest in digests.items():
        architecture = platform.partition("/")[2]
        inspected = project.typed(
            [
                *(skopeo, f"--override-arch={architecture}", "inspect", "--config"),
                *("--tls-verify=false", f"docker://{reference}"),
            ]
        )
        assert json.loads(inspected.stdout)["architecture"] == architecture
        resolved = project.typed(
            [oras, "resolve", "--plain-http", f"--platform={platform}", reference]
        )
        assert resolved.stdout.strip() == digest
        docker = ["docker", "--host", dockerd.host]
        project.typed([*docker, "pull", "--platform", platform, reference])
        told = project.typed([*docker, "inspect", "--format={{.Architecture}}", reference])
        assert told.stdout.strip() == architecture
    trust = (f"--key={key.with_name('cosign.pub')}", "--insecure-ignore-tlog=true")
    project.typed([cosign, "verify", *trust, reference])


def test_older_index_stays_until_the_new_one_is_whole(
    machines: dict[str, PublishingProject], registry: OwnRegistry, client: RegistryClient
) -> None:
    for platform in (AMD64, ARM64):
        _push(machines, registry, platform, "--release", "20261101.1")
    older = client.head(MOVING[0])
    for platform, project in machines.items():
        path = project.root / TEMPLATE
        path.write_text(path.read_text(encoding="utf-8").replace("WORD=first", "WORD=second"))
        project.render()
        project.run("build", *ONE, "--platform", platform)
    first = _push(machines, registry, AMD64, "--release", "20261102.1")
    assert client.head(MOVING[0]) == older
    assert any(MOVING[0] in text for text in first["left"])
    second = _push(machines, registry, ARM64)
    assert second["tag"] == f"{STEM}-20261102.1-arm64"
    index = client.manifest(MOVING[0])
    assert index
    assert read_index(index) == {AMD64: first["digest"], ARM64: second["digest"]}
    assert client.head(index_tag(f"{STEM}-20261101.1")) == older
    machines[AMD64].run("release", "list", "--from", client.name, "--check")
    pruned = machines[AMD64].json("release", "prune", "--from", client.name, "--keep", "1", "--yes")
    assert index_tag(f"{STEM}-20261101.1") in pruned["deleted"]
    assert client.manifest(MOVING[0]) == index
    machines[AMD64].run("release", "list", "--from", client.name, "--check")


def test_both_platforms_in_one_command(
    built: PublishingProject, registry: OwnRegistry, tmp_path: Path
) -> None:
    project = built.copied(tmp_path, f"ml/{uuid.uuid4().hex}")
    project.run("build", *ONE, "--platform", "all")
    planned = project.push(registry.host, "--platform", "all", "--dry-run", "--json", selection=ONE)
    assert len(json.loads(planned.stdout)["images"]) == 2
    pushed = project.push(registry.host, "--platform", "all", "--json", selection=ONE)
    first, second = json.loads(pushed.stdout)["published"]
    assert second["tag"] == f"{first['tag']}-arm64"
    assert second["index"] == index_tag(first["tag"])
