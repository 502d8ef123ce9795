"""As many recipes of like size by HPCCM, in one process; run by HPCCM's own interpreter.

    python hpccm_render.py VALUES.json OUT

A recipe has what an image's Dockerfile has: packages, Python, Open MPI, the lock's packages,
compilers, Horovod and a run-time stage. HPCCM's own building blocks write what they can write.
"""

import json
import sys
from pathlib import Path
from typing import Any

import hpccm  # type: ignore[import-not-found]  # in an environment of its own
from hpccm.building_blocks import (  # type: ignore[import-not-found]
    apt_get,
    gnu,
    openmpi,
    packages,
)
from hpccm.primitives import (  # type: ignore[import-not-found]
    comment,
    copy,
    environment,
    label,
    shell,
)

#: So many that a recipe is about as long as an image's Dockerfile.
STEPS = 16


def main() -> None:
    """Write one file an image."""
    hpccm.config.set_container_format("docker")
    values, out = Path(sys.argv[1]), Path(sys.argv[2])
    for name, given in json.loads(values.read_text(encoding="utf-8")).items():
        (out / name).mkdir(parents=True, exist_ok=True)
        (out / name / "Dockerfile").write_text(recipe(name, given), encoding="utf-8")


def recipe(name: str, given: dict[str, Any]) -> str:
    """Return one Dockerfile of two stages."""
    lines = [f"{key}=={value}" for key, value in given["image"]["version_of"].items()]
    build = hpccm.Stage(name="build")
    build += hpccm.primitives.baseimage(image="debian:12", _as="build", _distro="ubuntu22")
    build += comment(f"{name}: " + ", ".join(lines))
    build += apt_get(ospackages=given["os_packages"])
    build += gnu()
    build += openmpi(version="4.1.4", cuda=False, infiniband=False)
    build += packages(apt=given["cpython_packages"])
    build += shell(commands=[f"python3 -m pip install {line} --require-hashes" for line in lines])
    build += environment(variables={f"HOROVOD_WITH_{i}": "1" for i in ("MPI", "TENSORFLOW")})
    build += packages(apt=given["compiler_packages"])
    for step in range(STEPS):
        build += comment(f"Step {step} of Horovod's compilation, against this TensorFlow")
        build += shell(
            commands=[
                "mkdir -p /var/tmp/horovod && cd /var/tmp/horovod",
                "python3 -m pip wheel --no-deps --no-build-isolation --no-binary horovod horovod",
                "python3 -m pip install --prefix /opt/python --no-deps /var/tmp/horovod/*.whl",
                "find /out -exec touch --no-dereference --date=@1793491200 {} +",
                "python3 -m compileall -q /opt/python/lib/python3.6/site-packages",
                "rm -rf /var/tmp/horovod",
            ]
        )
    final = hpccm.Stage(name="final")
    final += hpccm.primitives.baseimage(image="debian:12", _distro="ubuntu22")
    final += apt_get(ospackages=given["os_packages"])
    final += build.runtime()
    final += copy(_from="build", src="/opt/python", dest="/opt/python")
    final += environment(variables=dict(given["environment"]))
    final += label(metadata=dict(given["labels"]))
    return f"{build}\n\n{final}\n"


if __name__ == "__main__":
    main()
