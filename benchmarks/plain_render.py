"""The floor of rendering: a loop over the templates with values that were prepared before.

    python plain_render.py VALUES.json TEMPLATES OUT

Jinja2 and the standard library alone; nothing is checked, and nothing is computed.
"""

import json
import shlex
import sys
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined


class Lookup(dict):  # type: ignore[type-arg]
    """Values by argument, for what the templates call: ``image.version_of("horovod")``."""

    def __call__(self, key: str) -> object:
        """Return the value that the call gave."""
        return self[key]


def main() -> None:
    """Write one file an image."""
    values, templates, out = (Path(word) for word in sys.argv[1:4])
    environment = Environment(  # noqa: S701 - Dockerfiles are not HTML
        loader=FileSystemLoader(templates),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["shell_word"] = shlex.quote
    template = environment.get_template("Dockerfile.j2")
    for name, given in json.loads(values.read_text(encoding="utf-8")).items():
        given["image"]["version_of"] = Lookup(given["image"]["version_of"])
        (out / name).mkdir(parents=True, exist_ok=True)
        text = template.render(given).rstrip("\n") + "\n"
        (out / name / "Dockerfile").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
