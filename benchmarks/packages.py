"""Install what data scientists import, each package by its name alone into a container of its own.

Shows what `pip install NAME` does to the packages of an image: the release that it finds, or why it
refuses; whether what was there stays as it was, and the new one can be imported with TensorFlow.

    .venv/bin/python benchmarks/packages.py IMAGE... [--ca FILE] [--write]
"""

import argparse
import json
import re
import sys
import time
from pathlib import Path

from measure import DOCKER, publish, table

from imgbuild.core.parallel import in_parallel
from imgbuild.core.process import Finished, run

#: What notebooks and tutorials import, chosen by hand; after a colon the module's own name.
NAMES = """
numpy pandas scipy scikit-learn:sklearn matplotlib seaborn plotly bokeh altair statsmodels
xgboost lightgbm catboost nltk spacy gensim transformers tokenizers sentencepiece keras
tensorflow-hub:tensorflow_hub tensorflow-datasets:tensorflow_datasets
tensorflow-probability:tensorflow_probability tensorflow-addons:tensorflow_addons
protobuf:google.protobuf h5py pillow:PIL opencv-python-headless:cv2 scikit-image:skimage imageio
librosa numba cython:Cython dask pyarrow sqlalchemy pymongo boto3 requests beautifulsoup4:bs4
lxml jupyterlab notebook ipywidgets mlflow wandb optuna shap networkx tqdm
"""
LIMIT = 900  # seconds
#: The most telling first: what a build from source lacks, what the index lacks, pip's own words.
_ERRORS = (
    r"unable to execute .*",
    r"No matching distribution found for .*",
    r"(?m)(?<=^ERROR: ).*",
)
_HELD = re.compile(r"The user requested \(constraint\) (\S+)")
_WANTED = re.compile(r"^ {4}(.* depends on .*|The user requested (?!\().*)", re.MULTILINE)
#: What is installed, what pip says and its exit code, what is installed then, what an import says.
SCRIPT = """
pip list --format=json 2> /dev/null; echo @@
pip install --no-cache-dir --progress-bar off "$0" 2>&1; echo "@@$?"
pip list --format=json 2> /dev/null; echo @@
python -c "import tensorflow, $1" > /tmp/import 2>&1 || tail -n 1 /tmp/import
"""


def main() -> None:
    """Print the table, or write it into docs/evidence.md; end with 1 if a package was changed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("images", nargs="+", metavar="IMAGE")
    parser.add_argument("--ca", type=Path, help="authorities of a network that re-signs TLS")
    parser.add_argument("--write", action="store_true", help="write the table to docs/evidence.md")
    chosen = parser.parse_args()
    packages = [name.partition(":")[::2] for name in NAMES.split()]
    jobs = [(image, name, module) for name, module in packages for image in chosen.images]
    cells = iter(in_parallel(lambda job: outcome(*job, chosen.ca), jobs, 3))
    rows = [(f"`{name}`", *(next(cells) for _ in chosen.images)) for name, _ in packages]
    changed = sum(cell.startswith("CHANGED") for row in rows for cell in row)
    today = time.strftime("%Y-%m-%d")
    text = f"{today}: {changed} of {len(jobs)} changed a package of an image.\n\n"
    text += table(("`pip install`", *(f"`{one}`" for one in chosen.images)), rows)
    publish("packages", text, write=chosen.write, timed=False)
    sys.exit(changed > 0)


def outcome(image: str, name: str, module: str, ca: Path | None) -> str:
    """Return a cell of the table: what became of one package in a fresh container."""
    trust = ["--volume", f"{ca}:/run/ca.pem:ro", "--env", "PIP_CERT=/run/ca.pem"] if ca else []
    command = [DOCKER, "run", "--rm", *trust, image, "bash", "-c", SCRIPT, name, module or name]
    found = verdict(name, run(command, timeout=LIMIT))
    print(f"{image} {name}: {found}", file=sys.stderr)
    return found


def verdict(name: str, ran: Finished) -> str:
    """Return what `SCRIPT` printed as a cell; a package that was there may not be another now."""
    parts = ran.output.split("@@")
    if len(parts) < 4:
        return f"no answer in {LIMIT} s: {ran.last(1)[-80:]}"
    status, _, listed = parts[2].partition("\n")
    before, after = _versions(parts[0]), _versions(listed)
    other = [
        f"{one} {was} → {after.get(one)}" for one, was in before.items() if after.get(one) != was
    ]
    if other:
        return f"CHANGED: {', '.join(other)}"
    if status != "0":
        return f"refused: {reason(parts[1])}"
    more = len(after) - len(before)
    done = after[name] + (
        f", with {more - 1} more" if more > 1 else "" if more else ", there already"
    )
    failed = parts[3].strip()[:80].replace("|", "\\|")
    return f"{done}, but `{failed}`" if failed else done


def _versions(listed: str) -> dict[str, str]:
    return {one["name"].lower().replace("_", "-"): one["version"] for one in json.loads(listed)}


def reason(said: str) -> str:
    """Return why pip refused, in its own words."""
    held, wanted = _HELD.findall(said), _WANTED.findall(said)
    found = [one[0] for one in (re.search(error, said) for error in _ERRORS) if one]
    words = f"{wanted[0]}, held is {held[0]}" if held and wanted else [*found, said.strip()][0]
    return words.replace("|", "\\|")[:110]


if __name__ == "__main__":
    main()
