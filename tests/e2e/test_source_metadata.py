"""The code of a source distribution, in a real container: a plain user, no network, no secret."""

import hashlib
import io
import json
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from support.checkout import Bases, Checkout

NAME = "tf-2.2-cpu-debian"
#: Says what its code can see as names of what it requires.
SETUP = """\
import os, socket
from setuptools import setup

def reaches():
    try:
        socket.create_connection(("1.1.1.1", 53), 3)
    except OSError:
        return False
    return True

facts = {"uid": os.getuid(), "net": reaches(), "secrets": os.path.exists("/run/secrets")}
facts["mark"] = os.path.exists(MARK)
open(MARK, "a").close() if os.path.isdir(os.path.dirname(MARK)) else None
seen = "-".join("%s-%s" % (name, str(facts[name]).lower()) for name in sorted(facts))
setup(name="imgbuild-e2e-teller", version="1.0", install_requires=["seen-" + seen])
"""
SEEN = "seen-mark-false-net-false-secrets-false-uid-65534"


def test_code_of_a_package_runs_in_a_container(
    base: Bases, checkout: Checkout, tmp_path: Path, tag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its facts are requirements that the index does not have, so that the command names them."""
    base(NAME)
    (index := tmp_path / "index").mkdir()
    (here := tmp_path / "here").mkdir()
    mark = here / "code-ran"
    source = index / "imgbuild-e2e-teller-1.0.tar.gz"
    with tarfile.open(source, "w:gz") as archive:
        text = f"MARK = {str(mark)!r}\n{SETUP}".encode()
        entry = tarfile.TarInfo("imgbuild-e2e-teller-1.0/setup.py")
        entry.size = len(text)
        archive.addfile(entry, io.BytesIO(text))
    monkeypatch.setenv("UV_FIND_LINKS", str(index))
    machine = replace(checkout, cache=tmp_path / "cache")
    options = (
        NAME,
        "--pip",
        "imgbuild-e2e-teller",
        "-t",
        tag,
        "--lock",
        str(here / "x.lock.txt"),
    )
    refused = machine.run("extend", *options, code=2)
    assert SEEN in refused.stderr
    assert [*here.iterdir()] == []
    # Beside it, the folder may have packages of the base that have no wheel.
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    (kept,) = (tmp_path / "cache" / "imgbuild" / "source-metadata").glob(f"{digest}-*.json")
    assert json.loads(kept.read_text())["requires"] == [SEEN]
