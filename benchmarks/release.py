"""Ten images built, tested, signed, pushed and verified; the same again; a release for security.

On the engine that imgbuild uses, whose images get their tags, with a registry on loopback and
Debian's cosign. The first release stands on a base that says its libgnutls30 is an old one, so
`imgbuild matrix --outdated` lists all of it; the second is what a scheduled run publishes then. The
wheels of Horovod are those that are kept.
"""

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml
from measure import IMGBUILD, ROOT, machine, options, publish, run, table
from transfer import change_base

sys.path.insert(0, str(ROOT / "tests"))
sys.path.insert(0, str(ROOT / "tests" / "e2e"))
from imgbuild.core.settings import Settings
from imgbuild.inputs.bootstrap import base_folder
from imgbuild.matrix.images import Image, all_images
from imgbuild.matrix.load import load_matrix
from support.debian_program import debian_program, with_program
from support.own_registry import OwnRegistry, own_registry

COUNT = 10
#: What the base says of libgnutls30, up to its version, and what it is made to say.
OUTDATED = (b"\nVersion: 3.7.9-2+deb12u", b"\nVersion: 3.7.9-1+deb12u")
_MEGABYTE = 1_000_000


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--images", nargs="+", metavar="NAME")
    parser.add_argument("--mended", type=int, metavar="COUNT", help="of these, released once more")
    chosen = parser.parse_args()
    family = all_images(load_matrix(ROOT / "matrix.yaml"))
    cpu = [one.name for one in family if one.stack == "debian" and one.variant == "cpu"]
    names = chosen.images or cpu[:COUNT]
    (first, *_) = (image for image in family if image.name == names[0])
    with TemporaryDirectory() as folder, own_registry(Path(folder) / "registry") as registry:
        work = Path(folder)
        env = _environment(work)
        run(["cosign", "generate-key-pair", f"--output-key-prefix={work}/own"], env)
        made = _make_base(first, env)
        settings = work / "settings.yaml"
        usual = settings.read_text("utf-8")
        change_base(made, settings, work, *OUTDATED)
        steps = _Steps(env, names, registry, work / "own")
        rows = [(f"{len(names)}, first", *steps.release("20260101.1")), ("again", *steps.release())]
        settings.write_text(usual, encoding="utf-8")
        listed = json.loads(run([*steps.words("matrix", "--outdated"), "--from", steps.to], env))
        mended = _Steps(env, names[: chosen.mended], registry, work / "own")
        what = f"{len(mended.names)} of {len(listed)} outdated, for security"
        rows.append((what, *mended.release("20260102.1")))
    head = ("images", "build and test, s", "sign and push, s", "verify, s", "MB to the registry")
    text = f"{machine()}\n\n{table(head, rows)}"  # other tables are of other days
    publish("release", text, write=chosen.write, timed=False)


@dataclass
class _Steps:
    """The three commands on some images, and what they add to the registry."""

    env: Mapping[str, str]
    names: Sequence[str]
    registry: OwnRegistry
    key: Path
    number: str = ""

    @property
    def to(self) -> str:
        return f"{self.registry.host}/bench"

    def words(self, command: str, *more: str) -> list[str]:
        return [
            IMGBUILD,
            command,
            *self.names,
            *more,
        ]

    def release(self, number: str = "") -> tuple[str, ...]:
        """Build, push and verify; without a number it is the last one again."""
        self.number = number or self.number
        before = _size(self.registry.storage)
        seconds = [self._timed(self.words("build"))]
        # A base that is no registry's, and perhaps an interpreter of this machine.
        allowed = ("--allow-substituted", "--json")
        push = ("--to", self.to, "--release", self.number, f"--sign-key={self.key}.key", *allowed)
        pushed = self._timed(self.words("push", *push))
        listed = json.loads(run(self.words("push", *push), self.env))["published"]
        references = [f"{self.to}:{one['tag']}" for one in listed]
        seconds += [pushed, 0.0]
        for reference in references:
            seconds[2] += self._timed([IMGBUILD, "verify", reference, f"--key={self.key}.pub"])
        sent = (_size(self.registry.storage) - before) / _MEGABYTE
        return (*(f"{one:.0f}" for one in seconds), f"{sent:,.0f}")

    def _timed(self, command: Sequence[str]) -> float:
        started = time.perf_counter()
        run(command, self.env)
        taken = time.perf_counter() - started
        print(f"{command[1]}: {taken:.1f} s", file=sys.stderr)
        return taken


def _environment(work: Path) -> dict[str, str]:
    """Return an environment with this machine's settings in a file of its own, and with cosign."""
    own, copy = ROOT / "imgbuild.local.yaml", work / "settings.yaml"
    copy.write_text(own.read_text("utf-8") if own.is_file() else "", encoding="utf-8")
    more = {"IMGBUILD_SETTINGS": str(copy), "XDG_STATE_HOME": str(work), "COSIGN_PASSWORD": "any"}
    return with_program({**os.environ, **more}, debian_program("cosign", "sid"))


def _make_base(image: Image, env: Mapping[str, str]) -> Path:
    """Return the layout of the base that the archive gives now."""
    path = Path(env["IMGBUILD_SETTINGS"])
    settings = yaml.safe_load(path.read_text("utf-8")) or {}
    base = {image.os_name: {"from": "bootstrap"}}
    path.write_text(yaml.safe_dump({**settings, "base": base}), encoding="utf-8")
    run([IMGBUILD, "matrix", image.name, "--make-bases"], env)
    return base_folder(image, Settings())


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


if __name__ == "__main__":
    main()
