"""A checkout whose images are tiny, pass in a second, and say what the real ones would say.

The matrix, the locks and the whole of imgbuild are the real ones. `python` in the images is a
program that prints what the real one would find: what the tags say is asked of the image.
"""

from __future__ import annotations

import base64
import json
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml
from conftest import ROOT, Checkout

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

LOCAL = "imgbuild-publishing/tensorflow"
#: Where it is published, below a registry's address.
REPOSITORY = "ml/tensorflow"
ONE = ("--tf", "1.10")
TWO = ("--tf", "1.10", "--tf", "1.11")
#: What the matrix's tags are for these images, but for the release.
IMMUTABLE = {
    "1.10": "1.10.0-cpu-py36-openmpi4.1.4-debian12",
    "1.11": "1.11.0-cpu-py36-openmpi4.1.4-debian12",
}
MOVING = {"1.10": ("1.10.0-cpu", "1.10-cpu"), "1.11": ("1.11.0-cpu", "1.11-cpu")}
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
LABEL {% for name, value in labels %}{{ name }}="{{ value }}"\
{{ "" if loop.last else " \\\\\\n      " }}{% endfor %}

CMD ["/bin/bash"]
"""
_CONFTEST = """\
def pytest_addoption(parser):
    parser.addoption("--expect")
    parser.addoption("--no-gpu")
"""
_SUITE = '''\
"""The bytes are whole."""


def test_bytes(host):
    assert host.check_output("stat -c %s /bytes").strip() == "60000"
'''


@dataclass(frozen=True)
class PublishingProject(Checkout):
    """The checkout of one who publishes, with a Docker configuration of their own."""

    @property
    def environment(self) -> dict[str, str]:
        return {**super().environment, "DOCKER_CONFIG": str(self.docker_config)}

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
        path = self.root / "imgbuild.local.yaml"
        document = {**yaml.safe_load(path.read_text(encoding="utf-8")), **settings}
        kept = {name: value for name, value in document.items() if value is not None}
        path.write_text(yaml.safe_dump(kept), encoding="utf-8")

    def build(self, *selection: str) -> None:
        result = self.run("build", *selection, timeout=300)
        assert result.returncode == 0, result.stdout + result.stderr

    def push(
        self, host: str, *options: str, selection: tuple[str, ...] = ONE
    ) -> subprocess.CompletedProcess[str]:
        return self.run(*self.push_words(host, *options, selection=selection), timeout=120)

    def push_words(
        self, host: str, *options: str, selection: tuple[str, ...] = ONE
    ) -> tuple[str, ...]:
        return ("push", *selection, "--to", f"{host}/{REPOSITORY}", "--allow-substituted", *options)

    def say(self, word: str) -> None:
        """Change the images, not their names."""
        template = self.root / "images" / "templates" / "Dockerfile.j2"
        lines = template.read_text(encoding="utf-8").splitlines(keepends=True)
        said = [f"ENV WORD={word}\n" if line.startswith("ENV WORD=") else line for line in lines]
        template.write_text("".join(said), encoding="utf-8")
        assert self.run("render").returncode == 0

    def green(self) -> set[str]:
        """Return the ids of the images in which every suite has passed."""
        reports = (self.state / "imgbuild" / "reports").glob("*.json")
        found = [json.loads(path.read_text(encoding="utf-8")) for path in reports]
        return {one["image_id"] for one in found if _passed(one["suites"])}


def _passed(suites: dict[str, dict[str, Any]]) -> bool:
    return bool(suites) and all(suite["verdict"] == "passed" for suite in suites.values())


def publishing_project(folder: Path, host: str, *, local: str = LOCAL) -> PublishingProject:
    """Return a new checkout in ``folder`` for the engine at ``host``; nothing is built yet."""
    root = folder / "checkout"
    for part in ("images/files", "images/locks"):
        shutil.copytree(ROOT / part, root / part, ignore=shutil.ignore_patterns("__pycache__"))
    matrix = (ROOT / "matrix.yaml").read_text(encoding="utf-8")
    matrix = matrix.replace("repository: imgbuild/tensorflow", f"repository: {local}", 1)
    matrix = matrix.replace("defaults: {stack: ubuntu", "defaults: {stack: debian", 1)
    own = ROOT / "imgbuild.local.yaml"
    settings = yaml.safe_load(own.read_text(encoding="utf-8")) if own.exists() else {}
    settings = {**(settings or {}), "engine": {**(settings or {}).get("engine", {}), "host": host}}
    for path, text in {
        "matrix.yaml": matrix,
        "imgbuild.local.yaml": yaml.safe_dump(settings),
        "images/templates/Dockerfile.j2": _TEMPLATE,
        "tests/image/conftest.py": _CONFTEST,
        "tests/image/test_bytes.py": _SUITE,
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    project = PublishingProject(root, folder / "state", host)
    project.docker_config.mkdir()
    result = project.run("render")
    assert result.returncode == 0, result.stderr
    return project
