"""Time of the quick commands, beside an empty Python, a plain Jinja2 loop and docker buildx bake.

Nothing to do: the engine holds an empty image with the labels of each current image. bake gets the
Dockerfile of every image with its real stages, mounts and copies, whose commands only make empty
folders; all of it is built before, so that every step comes from the cache.
"""

import json
import re
import shutil
import sys
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from measure import (
    DOCKER,
    IMGBUILD,
    ROOT,
    Contestant,
    compare,
    options,
    publish,
    run,
    scratch_engine,
    timing_table,
)
from plain_builds import supplied

from imgbuild.dockerfile.labels import INPUT_DIGEST, NAME, REPOSITORY
from imgbuild.dockerfile.variables import epoch_seconds, variables
from imgbuild.matrix.images import all_images
from imgbuild.matrix.load import load_matrix
from imgbuild.plan.plan import CREATED
from imgbuild.project import Project

NOTHING_TO_DO = ["build", "--all", "--no-test"]
#: What the copies of a Dockerfile name; the emptied commands make all of them.
FOLDERS = (
    "/opt/python/bin /opt/miniconda /out/opt/python/lib/python3.6/site-packages /build /wheels"
)
IMAGES = all_images(load_matrix(ROOT / "matrix.yaml"))


def main() -> None:
    """Measure all commands and print one table."""
    chosen = options(__doc__).parse_args()
    with scratch_engine() as (env, folder):
        make_current_images(env, folder)
        bake = bake_command(env, folder)
        run(bake, env)
        checkout = folder / "checkout"
        for part in ("images", "tests/image"):
            shutil.copytree(ROOT / part, checkout / part)
        shutil.copy(ROOT / "matrix.yaml", checkout)
        render = [IMGBUILD, "render", "--project", str(checkout)]
        contestants = [
            Contestant("empty Python", [sys.executable, "-c", "pass"], env),
            Contestant("imgbuild --help", [IMGBUILD, "--help"], env),
            Contestant("imgbuild list", [IMGBUILD, "list"], env),
            Contestant("imgbuild render", render, env, prepare=lambda: forget(checkout)),
            Contestant("plain Jinja2 loop", plain_loop(folder), env),
            Contestant("imgbuild build --all, nothing to do", [IMGBUILD, *NOTHING_TO_DO], env),
            Contestant("docker buildx bake, nothing to do", bake, env),
        ]
        seconds = compare(contestants, chosen.rounds)
    publish("commands", timing_table(seconds, "empty Python"), write=chosen.write)


def forget(checkout: Path) -> None:
    """Remove the rendered Dockerfiles."""
    shutil.rmtree(checkout / "images" / "dockerfiles")


LOOP = """\
import json, shlex, sys
from jinja2 import Environment, FileSystemLoader, StrictUndefined
values, templates, out = sys.argv[1:]
environment = Environment(loader=FileSystemLoader(templates), undefined=StrictUndefined,
                          trim_blocks=True, lstrip_blocks=True)
environment.filters["shell_word"] = shlex.quote
template = environment.get_template("Dockerfile.j2")
for name, given in json.load(open(values)).items():
    given["image"]["version_of"] = given["image"]["version_of"].__getitem__
    open(f"{out}/{name}", "w").write(template.render(given).rstrip() + "\\n")
"""


def plain_loop(folder: Path) -> list[str]:
    """Return the floor of rendering: Jinja2 alone, with values that were prepared before."""
    values = {}
    for image in IMAGES:
        found = {
            key: plain(value) for key, value in variables(image, ROOT / "images/locks").items()
        }
        found["image"]["version_of"] = {pin.component: pin.version for pin in image.pins}
        values[image.name] = found
    (folder / "values.json").write_text(json.dumps(values), encoding="utf-8")
    (folder / "loop.py").write_text(LOOP, encoding="utf-8")
    out = folder / "rendered"
    out.mkdir()
    words = [folder / "loop.py", folder / "values.json", ROOT / "images/templates", out]
    run([sys.executable, *map(str, words)])
    for image in IMAGES:
        committed = ROOT / "images/dockerfiles" / image.name / "Dockerfile"
        assert (out / image.name).read_bytes() == committed.read_bytes(), image.name
    return [sys.executable, *map(str, words)]


def plain(value: object) -> Any:  # noqa: ANN401 - JSON
    """Return a value as dictionaries, lists and words, with its properties as if they were data."""
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(one) for one in value]
    kinds = [kind for kind in type(value).__mro__ if kind.__module__.startswith("imgbuild")]
    names = [name for kind in kinds for name in (*kind.__annotations__, *_properties(kind))]
    hidden = {"matrix", "row"}  # whole tables, which no template reads
    return {
        name: plain(getattr(value, name))
        for name in names
        if not name.startswith("_") and name not in hidden
    }


def _properties(kind: type) -> list[str]:
    return [n for n, v in vars(kind).items() if isinstance(v, property | cached_property)]


def make_current_images(env: Mapping[str, str], folder: Path) -> None:
    """Give the engine an empty image for every image of the matrix, with its labels and names."""
    planned = json.loads(run([IMGBUILD, *NOTHING_TO_DO, "--plan", "--json"], env))
    digests = {item["image"]: item["input_digest"] for item in planned}
    context = folder / "empty"
    context.mkdir()
    (context / "Dockerfile").write_text("FROM scratch\nCOPY Dockerfile /\n", encoding="utf-8")
    for image in IMAGES:
        labels = {
            NAME: image.name,
            INPUT_DIGEST: digests[image.name],
            REPOSITORY: image.repository,
            CREATED: image.matrix.epoch,
        }
        words = [word for key, value in labels.items() for word in ("--label", f"{key}={value}")]
        words += ["--build-arg", f"SOURCE_DATE_EPOCH={epoch_seconds(image)}"]
        words += [word for tag in image.tags for word in ("--tag", tag)]
        run([DOCKER, "buildx", "build", *words, str(context)], env)
    left = json.loads(run([IMGBUILD, *NOTHING_TO_DO, "--plan", "--json"], env))
    assert all(item["action"] == "nothing" or item["image_id"] for item in left), left


def bake_command(env: Mapping[str, str], folder: Path) -> list[str]:
    """Return bake's command for the emptied Dockerfiles of the whole matrix."""
    sample = next(image for image in IMAGES if image.stack == "debian")
    (target,) = supplied([sample], Project(ROOT), env).values()
    downloads = folder / "downloads"
    downloads.mkdir()
    targets = {}
    for image in IMAGES:
        text = (ROOT / "images/dockerfiles" / image.name / "Dockerfile").read_text(encoding="utf-8")
        for name in re.findall(r"from=downloads,source=([^,]*)", text):
            (downloads / name).write_text(f"{name}\n", encoding="utf-8")
        dockerfile = folder / f"{image.name}.Dockerfile"
        dockerfile.write_text(emptied(text), encoding="utf-8")
        targets[image.name.replace(".", "_")] = {
            "context": str(ROOT / "images"),
            "dockerfile": str(dockerfile),
            "contexts": {
                "base": target.contexts["base"],
                "uv": target.contexts["uv"],
                "downloads": str(downloads),
            },
            "tags": [f"benchmark/bake:{image.name}"],
            "output": ["type=docker"],
        }
    definition = {"group": {"default": {"targets": sorted(targets)}}, "target": targets}
    (folder / "bake.json").write_text(json.dumps(definition), encoding="utf-8")
    return [DOCKER, "buildx", "bake", "--allow=fs=*", "--file", str(folder / "bake.json")]


def emptied(text: str) -> str:
    """Return a Dockerfile whose commands only make the folders that later steps copy from.

    Stages, mounts, copies, arguments and labels stay, and each command keeps its text, which
    the engine compares, behind an exit.
    """
    first, out, in_run = f"mkdir -p {FOLDERS} && exit 0", list[str](), False
    for line in text.splitlines():
        in_run = in_run or line.startswith("RUN ")
        words = line.removeprefix("RUN ").split()
        only_mounts = bool(words) and words[0].startswith("--") and words[-1] == "\\"
        if not in_run or only_mounts:
            out.append(line)
            continue
        in_run = False
        if "<<'EOT'" in line:
            out += [line, first]
        else:
            head = "RUN " if line.startswith("RUN ") else "    "
            out.append(f"{head}{first}; {line.removeprefix('RUN ').strip()}")
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    main()
