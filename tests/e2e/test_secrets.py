"""What is given to a build as a secret is in none of its layers, labels or logs."""

import gzip
import io
import json
import subprocess
import tarfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast
from zipfile import ZipFile

from support.checkout import COPY_REPOSITORY, Bases, Checkout
from support.copied_checkout import ca_bundle, change_settings
from support.waiting import seen_arguments


def marked_secrets(copy: Checkout, folder: Path) -> str:
    """Give the copy a CA bundle and login data with a mark in them; return the mark."""
    mark = uuid.uuid4().hex
    bundle, netrc = folder / "ca.pem", folder / "netrc"
    text = ca_bundle(copy.root).read_text(encoding="ascii")
    bundle.write_text(f"{text}# mark {mark}\n", encoding="ascii")
    netrc.write_text(f"machine mirror.invalid login me password {mark}\n", encoding="ascii")
    change_settings(copy.root, ca_bundle=str(bundle), netrc=str(netrc))
    return mark


def places_of(archive: IO[bytes], mark: bytes) -> Iterator[str]:
    """Yield each file with the mark of what ``docker save`` writes, layers one by one."""
    with tarfile.open(fileobj=archive, mode="r|") as saved:
        for member in saved:
            found = saved.extractfile(member)
            if found is None:
                continue
            stream = io.BufferedReader(cast("io.RawIOBase", found))
            # A containerd store keeps layers packed.
            packed = stream.peek(2).startswith(b"\x1f\x8b")
            with gzip.open(stream) if packed else stream as whole:
                if mark in whole.read():
                    yield member.name


def require_unmarked(copy: Checkout, image: str, mark: str) -> None:
    """Fail if the mark is in a layer, the configuration or the history of an image, or in a log."""
    save = ["docker", "save", image]
    with subprocess.Popen(save, env=copy.environment, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert [*places_of(process.stdout, mark.encode())] == []
        process.stdout.read()  # what is left would end it by a signal
    assert process.returncode == 0
    assert mark not in copy.printed("image", "inspect", image)
    assert mark not in copy.printed("history", "--no-trunc", image)
    assert mark not in copy.run("sbom", image).stdout
    assert mark not in copy.log()


def _tar(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def test_a_secret_that_a_later_layer_removes_is_found() -> None:
    mark = b"0123456789abcdef"
    secret = _tar({"root/.netrc": mark})
    layers = {"a": gzip.compress(secret), "b": secret, "c": _tar({"root/.wh..netrc": b""})}
    assert [*places_of(io.BytesIO(_tar(layers)), mark)] == ["a", "b"]


def test_secrets_are_used_and_left_behind(copy: Checkout, tmp_path: Path, tag: str) -> None:
    """In an image, and in what `imgbuild extend` makes of it."""
    mark = marked_secrets(copy, tmp_path)
    # The steps themselves see that they are there; they are new ones, so nothing is cached.
    with (copy.root / "images" / "files" / "network.sh").open("a", encoding="utf-8") as script:
        looks = "grep -q '^# mark ' /run/secrets/ca\ngrep -q mirror.invalid \"$NETRC\""
        script.write(f"{looks}\n# {tmp_path.name}\n")
    copy.render()
    with seen_arguments() as arguments:
        copy.run("build", "--tf", "1.10", "--no-test")
    assert [line for line in arguments if "buildx bake" in line]
    assert not [line for line in arguments if mark in line]
    base = f"{COPY_REPOSITORY}:1.10-cpu"
    require_unmarked(copy, base, mark)
    options = ("--pip=docopt", "--apt=libsndfile1", "--lock", str(tmp_path / "lock.txt"))
    copy.run("extend", base, *options, "-t", tag, "--no-test")
    require_unmarked(copy, tag, mark)


#: In the place of programs of an image. It tells what it is given, then does what the program does.
HOSTILE = r"""#!/usr/bin/dash.real
{
    echo "HOSTILE-RAN $0 $*"
    for file in /run/secrets/*; do
        [ -e "$file" ] && echo "STOLEN $file: $(/usr/bin/cat "$file")"
    done
    /usr/bin/grep -q eth0 /proc/net/dev && echo "STOLEN the network"
} >&2
case $0 in */sh) exec /usr/bin/dash.real "$@" ;; esac
exec "$0.real" "$@"
"""
HOSTILE_DOCKERFILE = """\
ARG BASE
FROM ${BASE}
COPY hostile /tmp/hostile
RUN --network=none cp /usr/bin/dash /usr/bin/dash.real && cd /usr/bin && \\
    for name in apt-get dpkg apt-cache; do mv $name $name.real && cp /tmp/hostile $name; done && \\
    rm /usr/bin/sh && cp /tmp/hostile /usr/bin/sh
"""


def test_a_foreign_image_gets_no_secret_and_no_network(
    copy: Checkout, base: Bases, tmp_path: Path, tag: str
) -> None:
    """By `imgbuild extend --apt` and `imgbuild scan`, though its shell and apt are its own."""
    mark = marked_secrets(copy, tmp_path)
    folder = tmp_path / "hostile"
    folder.mkdir()
    # Another one each time: steps that BuildKit has from an earlier run say nothing.
    (folder / "hostile").write_text(f"{HOSTILE}# {uuid.uuid4()}\n", encoding="utf-8")
    (folder / "hostile").chmod(0o755)
    (folder / "Dockerfile").write_text(HOSTILE_DOCKERFILE, encoding="utf-8")
    foreign = tag.replace(":1", "-foreign:1")
    on = base("tf-2.2-cpu-debian").tag
    try:
        copy.printed("build", "--quiet", f"--build-arg=BASE={on}", f"--tag={foreign}", str(folder))
        copy.run("extend", foreign, "--apt=libsndfile1", "-t", tag, "--no-test")
        copy.run("scan", foreign, "--osv", str(_no_records(tmp_path)), code=None)
        assert "libsndfile.so.1" in copy.printed("run", "--rm", tag, "/sbin/ldconfig", "-p")
    finally:
        copy.docker("rmi", "--force", foreign)
    log = copy.log()
    assert "HOSTILE-RAN" in log
    assert "STOLEN" not in log
    assert mark not in log


def _no_records(folder: Path) -> Path:
    """Return a file of OSV without records."""
    path = folder / "all.zip"
    with ZipFile(path, "w") as archive:
        archive.writestr("a.json", json.dumps({"id": "GHSA-x", "affected": []}))
    return path
