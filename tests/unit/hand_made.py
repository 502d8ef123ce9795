"""Tiny layers and archives, made by hand in every shape that ``docker save`` has had."""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Sequence

Member = tarfile.TarInfo | tuple[str, bytes]


def folder(path: str) -> tarfile.TarInfo:
    return _special(path, tarfile.DIRTYPE)


def symlink(path: str, target: str) -> tarfile.TarInfo:
    return _special(path, tarfile.SYMTYPE, target)


def hard_link(path: str, target: str) -> tarfile.TarInfo:
    link = _special(path, tarfile.LNKTYPE, target)
    link.size = 5  # some tools write the target's size here; it is no content
    return link


def tar(*members: Member) -> bytes:
    """Return a tar archive of files (path, content) and of others."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
            else:
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                archive.addfile(info, io.BytesIO(member[1]))
    return stream.getvalue()


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def config(layers: Sequence[bytes], made_by: Sequence[str] = ()) -> bytes:
    """Return an image's configuration: after each layer a step that made none."""
    history: list[dict[str, object]] = []
    for step in made_by:
        history += [{"created_by": step}, {"created_by": "ENV A=1", "empty_layer": True}]
    diff_ids = [f"sha256:{digest(layer)}" for layer in layers]
    document = {"rootfs": {"type": "layers", "diff_ids": diff_ids}, "history": history}
    return json.dumps(document).encode()


def docker_archive(layers: Sequence[bytes], made_by: Sequence[str] = ()) -> bytes:
    """Return what engines from 25 on save: plain layers as blobs, the manifest behind them."""
    own = config(layers, made_by)
    blobs = {f"blobs/sha256/{digest(blob)}": blob for blob in (own, *layers)}
    manifest = [
        {
            "Config": f"blobs/sha256/{digest(own)}",
            "RepoTags": None,
            "Layers": [f"blobs/sha256/{digest(layer)}" for layer in layers],
        }
    ]
    return tar(
        folder("blobs"),
        ("oci-layout", b'{"imageLayoutVersion": "1.0.0"}'),
        *sorted(blobs.items()),
        ("manifest.json", json.dumps(manifest).encode()),
    )


def old_archive(layers: Sequence[bytes]) -> bytes:
    """Return what engines before 25 save; a layer that is there twice is a symlink."""
    own = config(layers)
    members: list[Member] = []
    first: dict[bytes, int] = {}
    for index, layer in enumerate(layers):
        members += [folder(f"layer{index}"), (f"layer{index}/VERSION", b"1.0")]
        name = f"layer{index}/layer.tar"
        if layer in first:
            members.append(symlink(name, f"../layer{first[layer]}/layer.tar"))
        else:
            members.append((name, layer))
        first.setdefault(layer, index)
    names = [f"layer{index}/layer.tar" for index in range(len(layers))]
    manifest = json.dumps([{"Config": "abc.json", "Layers": names}]).encode()
    return tar(*members, ("abc.json", own), ("manifest.json", manifest))


def oci_archive(layers: Sequence[bytes], *, pack: bytes | None = None) -> bytes:
    """Return an OCI archive as engines with containerd save it: packed layers, an attestation.

    ``pack`` stands in place of every packed layer.
    """
    own = config(layers)
    packed = [pack or gzip.compress(layer, mtime=0) for layer in layers]
    manifest = _json(config=_descriptor(own), layers=[_descriptor(one) for one in packed])
    statement = b'{"_type": "in-toto"}'
    proof = _json(config=_descriptor(statement), layers=[_descriptor(statement)])
    index = _json(
        manifests=[
            {**_descriptor(proof), "platform": {"os": "unknown", "architecture": "unknown"}},
            {**_descriptor(manifest), "platform": {"os": "linux", "architecture": "amd64"}},
        ]
    )
    blobs = {
        f"blobs/sha256/{digest(one)}": one
        for one in (own, *packed, manifest, statement, proof, index)
    }
    top = _json(manifests=[_descriptor(index)])
    return tar(*sorted(blobs.items()), ("index.json", top), ("oci-layout", b"{}"))


def _descriptor(blob: bytes) -> dict[str, object]:
    return {"digest": f"sha256:{digest(blob)}", "size": len(blob)}


def _json(**document: object) -> bytes:
    return json.dumps(document).encode()


def _special(path: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(path)
    info.type = kind
    info.linkname = target
    return info
