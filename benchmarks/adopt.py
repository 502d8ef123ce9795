"""Time from `imgbuild adopt` to the first line of a program with ten packages, and of its phases.

The image of TensorFlow is in the engine. Cold: no package was ever downloaded. Warm: the packages
lie in imgbuild's cache, but there are no lock, no layers and no results of before.
"""

import json
import shutil
import statistics
import subprocess
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from measure import DOCKER, IMGBUILD, ROOT, options, publish, run, scratch_engine, table

from imgbuild.core.user_folders import cache_dir

IMAGE = "tf-2.2-cpu-debian"
PACKAGES = {
    "gensim": "gensim",
    "matplotlib": "matplotlib",
    "nltk": "nltk",
    "opencv-python": "cv2",
    "pandas": "pandas",
    "Pillow": "PIL",
    "scikit-image": "skimage",
    "scikit-learn": "sklearn",
    "seaborn": "seaborn",
    "tqdm": "tqdm",
}
PHASES = ("resolve", "build", "start", "test")


def main() -> None:
    parser = options(__doc__)
    chosen = parser.parse_args()
    with scratch_engine() as (env, folder):
        if cache_dir().is_dir():
            shutil.copytree(cache_dir(), folder / "cache" / "imgbuild", symlinks=True)
        run([IMGBUILD, "build", IMAGE, "--no-test"], {**env, "XDG_CACHE_HOME": f"{folder}/cache"})
        times: dict[str, list[dict[str, float]]] = defaultdict(list)
        for number in range(chosen.rounds):
            for name in ("cold", "warm"):
                cache = folder / f"cache-{number}"
                if name == "cold":
                    shutil.copytree(cache_dir() / "base", cache / "imgbuild" / "base")
                times[name].append(adopt(folder, {**env, "XDG_CACHE_HOME": str(cache)}))
    publish("adopt", _table(times), write=chosen.write)


def adopt(folder: Path, env: Mapping[str, str]) -> dict[str, float]:
    """Adopt a new repository, and return the seconds to its first line, of phases and of all."""
    forget_layers(env)
    repository = folder / "repository"
    shutil.rmtree(repository, ignore_errors=True)
    repository.mkdir()
    (repository / "requirements.txt").write_text("".join(f"{name}\n" for name in PACKAGES))
    imports = "".join(f"import {module}\n" for module in ("tensorflow", *PACKAGES.values()))
    (repository / "train.py").write_text(f"{imports}print('first line')\n")
    command = [IMGBUILD, "adopt", str(repository), "--date", "2020-06-30", "--tf", "2.2", "--json"]
    begin = time.perf_counter()
    with subprocess.Popen(
        command, env=env, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stderr
        assert process.stdout
        lines = list[str]()
        first = 0.0
        for line in process.stderr:
            lines.append(line)
            if "first line" in line:
                first = time.perf_counter() - begin
        output = process.stdout.read()
    whole = time.perf_counter() - begin
    if process.returncode or not first:
        raise RuntimeError(f"adopt ended with {process.returncode}: {''.join(lines)[-2000:]}")
    result = json.loads(output)
    if result["outcome"] != "finished" or result["missing"]:
        raise RuntimeError(f"adopt: {result['outcome']}, missing {result['missing']}")
    return {"first line": first, **{name: result["seconds"][name] for name in PHASES}, "all": whole}


def forget_layers(env: Mapping[str, str]) -> None:
    """Remove the adopted image and all layers of builds; the image of TensorFlow stays."""
    subprocess.run(
        [DOCKER, "image", "rm", "--force", "adopted/repository:1"],
        env=env,
        check=False,
        capture_output=True,
    )
    run([DOCKER, "buildx", "prune", "--filter=type=regular", "--all", "--force"], env)


def _table(times: Mapping[str, list[dict[str, float]]]) -> str:
    """Return medians, and the range and the ratio of the seconds to the first line."""
    rows = []
    for name, rounds in times.items():
        firsts = [seconds["first line"] for seconds in rounds]
        ratios = [own / warm["first line"] for own, warm in zip(firsts, times["warm"], strict=True)]
        medians = [
            f"{statistics.median(seconds[phase] for seconds in rounds):.1f}"
            for phase in ("first line", *PHASES, "all")
        ]
        spread = f"{min(firsts):.1f}–{max(firsts):.1f}"
        rows.append((name, *medians, spread, f"{statistics.median(ratios):.2f}"))
    count = len(times["warm"])
    head = ("packages", "to the first line", *PHASES, "all", f"range of {count} rounds", "× warm")
    return table(head, rows)


if __name__ == "__main__":
    main()
