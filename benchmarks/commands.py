"""Time of the quick commands, beside an empty Python and docker buildx bake.

Nothing to do: the engine holds an empty image with the labels of each current image. bake gets the
Dockerfile of every image with its real stages, mounts and copies, whose commands only make empty
folders; all of it is built before, so that every step comes from the cache.
"""

import json
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

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

from imgbuild.core.project import Project
from imgbuild.dockerfile.labels import INPUT_DIGEST, NAME, REPOSITORY
from imgbuild.dockerfile.variables import epoch_seconds
from imgbuild.matrix.images import all_images
from imgbuild.matrix.load import load_matrix
from imgbuild.plan.plan import CREATED

NOTHING_TO_DO = ["build", "--all", "--no-test"]
ONE = ["build", "--tf", "2.2", "--no-test"]
#: What the copies of a Dockerfile name; the emptied commands make all of them.
FOLDERS = (
    "/opt/python/bin /opt/miniconda /out/opt/python /build /wheels /uv /usr/bin/strip "
    "/usr/lib/x86_64-linux-gnu/libbfd"
)
IMAGES = all_images(load_matrix(ROOT / "matrix.yaml"))


def main() -> None:
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
            Contestant("imgbuild build --tf 2.2, nothing to do", [IMGBUILD, *ONE], env),
            Contestant("imgbuild build --all, nothing to do", [IMGBUILD, *NOTHING_TO_DO], env),
            Contestant("docker buildx bake, nothing to do", bake, env),
        ]
        seconds = compare(contestants, chosen.rounds)
    publish("commands", timing_table(seconds, "empty Python"), write=chosen.write)


def forget(checkout: Path) -> None:
    shutil.rmtree(checkout / "images" / "dockerfiles")


def make_current_images(env: Mapping[str, str], folder: Path) -> None:
    """Give the engine an empty image for every image of the matrix, with its labels and names."""
    planned = json.loads(run([IMGBUILD, *NOTHING_TO_DO, "--dry-run", "--json"], env))
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
    left = json.loads(run([IMGBUILD, *NOTHING_TO_DO, "--dry-run", "--json"], env))
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
                "conda-packages": str(downloads),
            },
            "tags": [f"benchmark/bake:{image.name}"],
            "output": ["type=docker"],
        }
    definition = {"group": {"default": {"targets": sorted(targets)}}, "target": targets}
    (folder / "bake.json").write_text(json.dumps(definition), encoding="utf-8")
    return [DOCKER, "buildx", "bake", "--allow=fs=*", "--file", str(folder / "bake.json")]


#: The options of a command, or of the line that goes on with them, and the rest of the line.
OPTIONS = re.compile(r"((?:RUN)?\s*(?:--\S+\s+)*)(.*)")


def emptied(text: str) -> str:
    """Return a Dockerfile whose commands only make the folders that later steps copy from.

    Stages, mounts, copies, arguments and labels stay, and each command keeps its text, which
    the engine compares, behind an exit.
    """
    # What is mounted; and where, since a mount within another cannot make its folder.
    mounts = re.findall(r"--mount=from=[^, ]+,source=(/[^, ]+)", text)
    mounts += re.findall(r",target=(/opt/[^, ]+)", text)
    mounted = " ".join(sorted({*mounts}))
    first, out, in_run = f"mkdir -p {FOLDERS} {mounted} && exit 0", list[str](), False
    for line in text.splitlines():
        in_run = in_run or line.startswith("RUN ")
        parts = OPTIONS.match(line)
        if not in_run or line.lstrip().startswith("#") or not parts or parts[2] in {"", "\\"}:
            out.append(line)
            continue
        in_run = False
        out += [line, first] if "<<'EOT'" in line else [f"{parts[1]}{first}; {parts[2]}"]
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    main()
