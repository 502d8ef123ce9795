"""A wheel in an index, and imgbuild run with that index."""

import hashlib

from imgbuild.core.errors import ImgbuildError
from support.fake_wheel import FakeWheel
from support.faulty_server import FaultyServer, Reply
from support.project_copy import invoke


def run_command(index: FaultyServer, *words: str) -> tuple[int, str, str]:
    """Run imgbuild with an index; return the exit code, what is printed, and the error."""
    result = invoke(*words, env={"UV_DEFAULT_INDEX": f"{index.url}/simple"})
    error = result.exception
    assert error is None or isinstance(error, ImgbuildError), result.output
    return (error.exit_code if error else 0), result.stdout, str(error or "")


def offer(server: FaultyServer, wheel: FakeWheel, attribute: str = "") -> str:
    """Offer a wheel for three Pythons; return its sha256."""
    content = wheel.content()
    sha256 = hashlib.sha256(content).hexdigest()
    links = []
    for tag in ("cp36-cp36m", "cp37-cp37m", "cp38-cp38"):
        name = wheel.file.replace("cp36-cp36m", tag)
        server.give(f"/{name}", Reply(content))
        links.append(f'href="/{name}#sha256={sha256}" {attribute}>{name}')
    server.project(wheel.name, *links)
    return sha256
