"""A checkout whose images are tiny, pass in a second, and say what the real ones would say.

What tags say is asked of `python` in the image, which prints what the real one would find.
"""

import base64
import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from imgbuild.net.repository_client import RegistryClient, connect
from support.checkout import Checkout
from support.copied_checkout import (
    change_settings,
    copied_checkout,
    substitute_cpython,
    take_base,
    tiny,
)
from support.releases import release_of

LOCAL = "imgbuild-publishing/tensorflow"
REPOSITORY = "ml/tensorflow"
ONE = ("--tf", "1.10")
TWO = ("--tf", "1.10", "--tf", "1.11")
#: What the matrix's tags are for these images, but for the release.
IMMUTABLE = {
    minor: f"{release_of(minor)}-cpu-py36-debian12-openmpi4.1.4" for minor in ("1.10", "1.11")
}
MOVING = {minor: (f"{minor}-cpu", f"{release_of(minor)}-cpu") for minor in IMMUTABLE}
#: What is said of an image whose source of CPython is a substitute.
SUBSTITUTED = "downloads are substituted: SHA256_CPYTHON"
TINY_TEMPLATE = """\
FROM base AS os
FROM os AS final
RUN --network=none <<'EOT'
cat > /usr/local/bin/python <<'EOF'
#!/bin/sh
case "$*" in *conda-meta*) # the program that lists packages
cat <<'END'
{"system": [["base-files", "12.4", "amd64", "base-files", "12.4", "somebody"]],
 "python": [["TensorFlow", "{{ image.tensorflow }}", "Apache-2.0", "/site-packages"]],
 "conda": []}
END
exit;;
esac
cat <<'END'
{"distributions": [["horovod", "{{ image.keys.get("horovod", "") }}"],
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
    """The checkout of one who publishes to ``repository``, with an own Docker configuration."""

    repository: str = REPOSITORY
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        own = {"DOCKER_CONFIG": str(self.docker_config), **self.variables}
        return {**super().environment, **own}

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

    @contextmanager
    def client(self, host: str) -> Iterator[RegistryClient]:
        settings = self.project.settings
        with closing(connect(f"{host}/{self.repository}", settings, print, "--to")) as opened:
            yield opened

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
        """Return a copy with the same engine and cache, and what was found in the images."""
        made = replace(
            self, root=folder / "checkout", state=folder / "state", repository=repository
        )
        shutil.copytree(self.root, made.root)
        shutil.copytree(self.state, made.state)
        shutil.copytree(self.docker_config, made.docker_config)
        return made

    def green(self) -> set[str]:
        """Return the ids of the images in which every suite has passed."""
        reports = (self.state / "imgbuild" / "reports").glob("*.json")
        found = [json.loads(path.read_text(encoding="utf-8")) for path in reports]
        return {
            report["image_id"]
            for report in found
            if {suite["verdict"] for suite in report["suites"].values()} == {"passed"}
        }


def publishing_project(
    folder: Path, host: str | None, *, local: str = LOCAL, template: str = TINY_TEMPLATE
) -> PublishingProject:
    """Return a new checkout, of whose images `SUBSTITUTED` is true; nothing is built yet."""
    cache = folder / "cache"
    project = PublishingProject(folder / "checkout", folder / "state", host, cache)
    copied_checkout(project.root, local, files=tiny(template, bytes=_SUITE), host=host)
    take_base(project.root, cache)
    substitute_cpython(project.root, cache)
    project.docker_config.mkdir()
    project.render()
    return project
