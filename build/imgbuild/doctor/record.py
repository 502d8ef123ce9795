"""``imgbuild.local.yaml``, written whole or not at all, and read back."""

from pathlib import Path

from imgbuild.errors import MachineError
from imgbuild.files import write_text
from imgbuild.settings import Settings, load_settings

HEADER = """\
# What this machine gives to builds. Every imgbuild command reads it; it is never committed.
# Written by `imgbuild doctor --write`, which keeps what you set here while it is valid.
# All keys: docs/guide.md.
"""


def write_settings(settings: Settings, path: Path) -> bool:
    """Write ``settings`` to ``path``; return whether the file changed.

    A file that already says the same stays as it is, comments and all.

    Raises:
        MachineError: the file cannot be written, or does not read back as what was meant.

    """
    if path.exists() and load_settings(path) == settings:
        return False
    write_text(path, render_settings(settings))
    if load_settings(path) != settings:
        raise MachineError(f"{path} does not read back as what was written; remove it.")
    return True


def render_settings(settings: Settings) -> str:
    """Return the file's text."""
    import yaml  # noqa: PLC0415 - only this command writes YAML

    values = settings.model_dump(mode="json", by_alias=True, exclude_none=True)
    said = {key: value for key, value in values.items() if value}
    body = yaml.safe_dump(said, sort_keys=False) if said else "{}\n"
    return f"{HEADER}{body}"
