"""A checkout whose images are tiny, pass in a second, and say what the real ones would say.

The matrix, the locks and the whole of imgbuild are the real ones. `python` in the images is a
program that prints what the real one would find: what the tags say is asked of the image.
"""

import base64
import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checkout import Checkout
from copied_checkout import (
    CONFTEST,
    LABELS,
    SUITES,
    TEMPLATE,
    change_settings,
    copied_checkout,
    substitute_cpython,
    take_base,
)

from releases import release_of

LOCAL = "imgbuild-publishing/tensorflow"
REPOSITORY = "ml/tensorflow"
ONE = ("--tf", "1.10")
TWO = ("--tf", "1.10", "--tf", "1.11")
#: What the matrix's tags are for these images, but for the release.
IMMUTABLE = {
    "1.10": f"{release_of('1.10')}-cpu-py36-openmpi4.1.4-debian12",
    "1.11": f"{release_of('1.11')}-cpu-py36-openmpi4.1.4-debian12",
}
MOVING = {minor: (f"{release_of(minor)}-cpu", f"{minor}-cpu") for minor in ("1.10", "1.11")}
#: What is said of an image whose source of CPython is a substitute.
SUBSTITUTED = "downloads are substituted: SHA256_CPYTHON"
_TEMPLATE = """\
FROM base AS os
FROM os AS final
RUN --network=none <<'EOT'
cat > /usr/local/bin/python <<'EOF'
#!/bin/sh
cat <<'END'
{"distributions": [["horovod", "{{ image.version_of("horovod") }}"],
                   ["tensorflow", "{{ image.tensorflow }}"]],
 "built_with_cuda": false, "kernels": false, "python": "{{ image.version_of("python") }}",
 "mpirun": "mpirun (Open MPI) {{ image.mpi.version }}", "cuda": [],
 "os": ["{{ image.os.distribution }}", "{{ image.os.version }}"]}
END
EOF
chmod 0755 /usr/local/bin/python
head -c 60000 /dev/urandom > /bytes
EOT
ENV WORD=first
"""
_SUITE = '''\
"""The bytes are whole."""


def test_bytes(host):
    assert host.check_output("stat -c %s /bytes").strip() == "60000"
'''


@dataclass(frozen=True)
class PublishingProject(Checkout):
    """The checkout of one who publishes, with a Docker configuration of their own.

    ``repository`` is where it is published, below a registry's address.
    """

    repository: str = REPOSITORY

    @property
    def environment(self) -> dict[str, str]:
        own = {"DOCKER_CONFIG": str(self.docker_config), "XDG_CACHE_HOME": str(self.cache)}
        return {**super().environment, **own}

    @property
    def cache(self) -> Path:
        """The cache of all who work with this checkout: their base image is one."""
        return self.root.parent / "cache"

    @property
    def docker_config(self) -> Path:
        return self.state.parent / "docker-config"

    def log_in(self, host: str, user: str, password: str) -> None:
        """Write what `docker login` writes."""
        auth = base64.b64encode(f"{user}:{password}".encode()).decode()
        config = json.dumps({"auths": {host: {"auth": auth}}})
        (self.docker_config / "config.json").write_text(config, encoding="utf-8")

    def set_up(self, **settings: Any) -> None:
        """Change settings of the machine, such as ``publishing``; None takes one away."""
        change_settings(self.root, **settings)

    def build(self, *selection: str) -> None:
        self.run("build", *selection, timeout=300)

    def push(
        self, host: str, *options: str, selection: tuple[str, ...] = ONE, code: int | None = 0
    ) -> subprocess.CompletedProcess[str]:
        words = self.push_words(host, *options, selection=selection)
        return self.run(*words, code=code, timeout=120)

    def push_words(
        self, host: str, *options: str, selection: tuple[str, ...] = ONE
    ) -> tuple[str, ...]:
        to = f"{host}/{self.repository}"
        return ("push", *selection, "--to", to, "--allow-substituted", *options)

    def copied(self, folder: Path, repository: str) -> "PublishingProject":
        """Return a copy in ``folder`` that knows what was found in the images, and publishes there.

        The engine and the cache are the same.
        """
        shutil.copytree(self.root, folder / "checkout")
        shutil.copytree(self.state, folder / "state")
        shutil.copytree(self.docker_config, folder / "docker-config")
        (folder / "cache").symlink_to(self.cache)
        return PublishingProject(folder / "checkout", folder / "state", self.host, repository)

    def green(self) -> set[str]:
        """Return the ids of the images in which every suite has passed."""
        reports = (self.state / "imgbuild" / "reports").glob("*.json")
        found = [json.loads(path.read_text(encoding="utf-8")) for path in reports]
        return {one["image_id"] for one in found if _passed(one["suites"])}


def _passed(suites: dict[str, dict[str, Any]]) -> bool:
    return bool(suites) and all(suite["verdict"] == "passed" for suite in suites.values())


def publishing_project(folder: Path, host: str, *, local: str = LOCAL) -> PublishingProject:
    """Return a new checkout in ``folder`` for the engine at ``host``; nothing is built yet.

    `SUBSTITUTED` is true of its images, on every machine.
    """
    files = {
        TEMPLATE: _TEMPLATE + LABELS,
        f"{SUITES}/conftest.py": CONFTEST,
        f"{SUITES}/test_bytes.py": _SUITE,
    }
    project = PublishingProject(folder / "checkout", folder / "state", host)
    copied_checkout(project.root, local, files=files, host=host)
    take_base(project.root, project.cache)
    substitute_cpython(project.root, project.cache)
    project.docker_config.mkdir()
    project.render()
    return project
