"""A registry with the Referrers API: go-containerregistry's, compiled from Debian's packages.

Debian's docker-registry lacks that API, and ``crane registry serve`` leaves it out.
"""

import atexit
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from support.debian_program import debian_program
from support.own_registry import OwnRegistry, free_port

_SUITE, _GO = "trixie", "golang-1.24"
_SERVER = """\
package main

import (
	"log"
	"net/http"
	"os"

	"github.com/google/go-containerregistry/pkg/registry"
)

func main() {
	blobs := registry.WithBlobHandler(registry.NewDiskBlobHandler(os.Args[2]))
	quiet := registry.Logger(log.New(os.Stderr, "", 0))
	server := registry.New(blobs, quiet, registry.WithReferrersSupport(true))
	log.Fatal(http.ListenAndServe(os.Args[1], server))
}
"""


class ReferrersRegistry(OwnRegistry):
    """Like the other, but manifests are gone once it stops."""

    def command(self) -> Sequence[str]:
        self.storage.mkdir(exist_ok=True)
        return [str(_server()), self.host, str(self.storage)]


@contextmanager
def referrers_registry(folder: Path) -> Iterator[OwnRegistry]:
    """Give a running registry, plain and without a login."""
    folder.mkdir(parents=True, exist_ok=True)
    with ReferrersRegistry(folder, folder / "data", free_port(), None, None).running() as registry:
        yield registry


@cache
def _server() -> Path:
    kept = TemporaryDirectory(prefix="imgbuild-referrers-")
    atexit.register(kept.cleanup)
    folder = Path(kept.name)
    for package in (f"{_GO}-src", f"{_GO}-go"):  # each has links into the other
        usr = debian_program(package, _SUITE).parent
        subprocess.run(["cp", "--recursive", f"{usr}/.", str(folder)], check=True)
    goroot = folder / "lib" / _GO.replace("golang", "go")
    code = debian_program("golang-github-google-go-containerregistry-dev", _SUITE).parent
    (folder / "server.go").write_text(_SERVER, encoding="ascii")
    environment = {
        **os.environ,
        "GO111MODULE": "off",
        "GOROOT": str(goroot),
        "GOCACHE": str(folder / "cache"),
        "GOPATH": str(code / "share" / "gocode"),
    }
    build = [str(goroot / "bin" / "go"), "build", "-o", str(folder / "server"), "server.go"]
    subprocess.run(build, cwd=folder, env=environment, check=True)
    return folder / "server"
