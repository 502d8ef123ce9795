"""Bytes that a registry gets, and that a user pulls, for a release and for each kind of rebuild.

Images of debian are built, and built again, on an engine of its own, and pushed to a registry on
loopback; what counts are the blobs that it did not have. Every step runs again, on downloads that
are kept. The update of the system is one of the package base-files. Images for GPUs are built once.
"""

import io
import json
import shutil
import sys
import tarfile
from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from measure import DOCKER, IMGBUILD, ROOT, options, publish, run, scratch_engine, table

sys.path.insert(0, str(ROOT / "tests"))
sys.path.insert(0, str(ROOT / "tests" / "e2e"))
from imgbuild.core.settings import Settings
from imgbuild.inputs import oci_layout
from imgbuild.inputs.bootstrap import base_folder
from imgbuild.matrix.images import all_images
from imgbuild.matrix.load import load_matrix
from imgbuild.net.repository_client import connect
from support.own_registry import OwnRegistry, own_registry

#: What is built where --images names nothing else.
IMAGES = ("tf-2.2-cpu-debian",)
#: Another Horovod that the rules admit for the first image: its row before and after.
HOROVOD = (
    "{tensorflow: 2.2.3, stack: debian, variants: [cpu], horovod: 0.19.5, budget",
    "{tensorflow: 2.2.3, stack: debian, variants: [cpu], horovod: 0.20.3, budget",
)
#: Of the package base-files, a version that is newer by a revision.
UPDATE = (b"\nVersion: 12.4+deb12u", b"\nVersion: 12.4+deb12u9")
_MEGABYTE = 1_000_000


@dataclass
class Release:
    """Builds and pushes images; ``blobs`` are those that the registry has, with their sizes."""

    registry: OwnRegistry
    env: Mapping[str, str]
    folder: Path
    blobs: dict[str, int] = field(default_factory=dict)

    def build(self, name: str, project: Path = ROOT) -> None:
        """Build an image with every step run again: neither it nor a step is there before."""
        run([DOCKER, "builder", "prune", "--all", "--force", "--filter=type=regular"], self.env)
        for reference in run([DOCKER, "images", "-q"], self.env).split():
            run([DOCKER, "rmi", "--force", reference], self.env)
        command = [IMGBUILD, "build", name, "--no-test", "--project", str(project)]
        run(command, self.env)

    def push(self, name: str) -> int:
        """Push an image; return the bytes of its blobs that the registry did not have."""
        target = f"{self.registry.host}/bench:{name}"
        family = all_images(load_matrix(ROOT / "matrix.yaml"))
        (tag,) = (image.tags[0] for image in family if image.name == name)
        run([DOCKER, "tag", tag, target], self.env)
        run([DOCKER, "push", "--quiet", target], self.env)
        manifest = self._manifest(name)
        sizes = {
            blob["digest"]: int(blob["size"]) for blob in (manifest["config"], *manifest["layers"])
        }
        new = {digest: size for digest, size in sizes.items() if digest not in self.blobs}
        self.blobs |= new
        print(f"{name}: {sum(new.values()) / _MEGABYTE:.1f} MB new, {len(new)}", file=sys.stderr)
        return sum(new.values())

    def _manifest(self, name: str) -> dict[str, Any]:
        with closing(connect(f"{self.registry.host}/bench", Settings(), print, "")) as client:
            manifest = client.manifest(name)
        assert manifest
        return dict(json.loads(manifest.content))

    def rebuilt(self, name: str, project: Path = ROOT) -> int:
        """Build an image once more, and return what a push of it adds."""
        self.build(name, project)
        return self.push(name)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--images", nargs="+", default=IMAGES, metavar="NAME")
    chosen = parser.parse_args()
    family = all_images(load_matrix(ROOT / "matrix.yaml"))
    named = {image.name: image for image in family}
    images = {name: named[name] for name in chosen.images}
    with scratch_engine() as (env, work), own_registry(work / "registry") as registry:
        release = Release(registry, env, work)
        again = [name for name, image in images.items() if image.variant == "cpu"]

        def row(what: str, names: Collection[str], project: Path = ROOT) -> tuple[str, ...]:
            sizes = (release.rebuilt(one, project) if one in names else None for one in images)
            return (what, *map(_megabytes, sizes))

        rows = [row("first release", images), row("nothing changed", again)]
        with TemporaryDirectory() as folder:
            other = _other_horovod(Path(folder) / "checkout")
            rows.append(row("another Horovod", IMAGES, other))
        made = base_folder(next(iter(images.values())), Settings())
        change_base(made, Path(env["IMGBUILD_SETTINGS"]), work, *UPDATE)
        rows.append(row("an update of the system", again))
    publish("transfer", table(("MB new in a registry", *images), rows), write=chosen.write)


def _megabytes(size: int | None) -> str:
    return "-" if size is None else f"{size / _MEGABYTE:,.1f}"


def change_base(made: Path, settings: Path, work: Path, old: bytes, new: bytes) -> None:
    """Let builds stand on the base ``made`` with other words in dpkg's list, as of a version."""
    rootfs, layout = work / "rootfs.tar", work / "debian-12"
    blob = json.loads((made / "index.json").read_text("utf-8"))["manifests"][0]["digest"]
    manifest = json.loads((made / oci_layout.blob_path(blob)).read_text("utf-8"))
    layer = made / oci_layout.blob_path(manifest["layers"][0]["digest"])
    with tarfile.open(layer) as whole, tarfile.open(rootfs, "w") as changed:
        for member in whole:
            content = whole.extractfile(member) if member.isfile() else None
            data = content.read() if content else b""
            if member.name.removeprefix("./") == "var/lib/dpkg/status":
                if old not in data:
                    raise SystemExit(f"the base has no {old!r}: change what is replaced")
                data = data.replace(old, new, 1)
            elif member.name.removeprefix("./") == "etc/issue":
                data += b"\n"
            member.size = len(data)
            changed.addfile(member, io.BytesIO(data) if data else None)
    oci_layout.write_layout(layout, rootfs, name="debian-12", epoch=0)
    found = yaml.safe_load(settings.read_text("utf-8"))
    found["base"] = {"debian-12": {"from": "layout", "path": str(layout)}}
    settings.write_text(yaml.safe_dump(found), encoding="utf-8")


def _other_horovod(checkout: Path) -> Path:
    """Return a copy of this checkout in which the first image has another Horovod."""
    shutil.copytree(ROOT, checkout, ignore=shutil.ignore_patterns(".venv", "*cache*", "reports"))
    matrix = checkout / "matrix.yaml"
    text = matrix.read_text("utf-8")
    if HOROVOD[0] not in text:
        raise SystemExit(f"matrix.yaml has no row {HOROVOD[0]!r}: change HOROVOD")
    matrix.write_text(text.replace(*HOROVOD), encoding="utf-8")
    run([IMGBUILD, "render", "--project", str(checkout)])
    return checkout


if __name__ == "__main__":
    main()
