"""`python -m standin DIR [--serve]`: make the stand-ins below DIR, and serve them to builds."""

import argparse
import json
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import yaml

from imgbuild.core.project import Project, find_project
from imgbuild.engine.discovery import resolve_host
from imgbuild.matrix.load import load_matrix
from standin.context import HERE, Context
from standin.server import serve
from standin.upstreams import make_sites, settings_of
from standin.workbench import environment

DEFAULT_PORT = 8473


def open_context(project: Project) -> Context:
    host = resolve_host(project.settings.engine)
    return Context(project, load_matrix(project.matrix), project.settings, host)


def prepare(context: Context, folder: Path, url: str) -> Path:
    """Lay out ``folder``/www and write ``folder``/standin.yaml, whose path is returned."""
    sites = make_sites(context)
    www = folder / "www"
    www.mkdir(parents=True, exist_ok=True)
    for site in sites:
        link = www / site.name
        link.unlink(missing_ok=True)
        link.symlink_to(site.folder)
    settings = folder / "standin.yaml"
    head = "# Written by `python -m standin`: for tests only.\n"
    text = yaml.safe_dump(settings_of(context, sites, url), sort_keys=False, width=200)
    settings.write_text(head + text, encoding="utf-8")
    return settings


def gateway(context: Context) -> str:
    """Return this machine's address on the engine's default bridge, where containers reach it."""
    command = ["docker", "network", "inspect", "bridge"]
    done = subprocess.run(command, env=environment(context), capture_output=True, check=True)
    return str(json.loads(done.stdout)[0]["IPAM"]["Config"][0]["Gateway"])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m standin", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument(
        "--project", type=Path, default=HERE.resolve().parents[1], help="a checkout"
    )
    parser.add_argument("--address", help="where to listen; default: the engine's bridge")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT)
    parser.add_argument("--serve", action="store_true", help="serve until this is interrupted")
    arguments = parser.parse_args()
    context = open_context(find_project(arguments.project.resolve(), named=True))
    address = arguments.address or gateway(context)
    folder = arguments.folder.resolve()
    started = time.monotonic()
    settings = prepare(context, folder, f"http://{address}:{arguments.port}")
    print(f"{settings} ({time.monotonic() - started:.1f} s)")  # noqa: T201 - a command's answer
    if arguments.serve:
        with serve(folder, address, arguments.port) as server:
            print(f"serving at {server.url}; Ctrl-C ends it")  # noqa: T201
            with suppress(KeyboardInterrupt):
                signal.pause()


if __name__ == "__main__":
    main()
