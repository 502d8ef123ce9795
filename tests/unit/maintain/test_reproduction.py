"""`imgbuild verify --rebuild` on an engine in memory: what is compared, what is left, how it ends.

Real images are built again in tests/e2e/test_reproduce.py and test_reproducible.py.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from imgbuild.build.context import BuildContext, BuildOptions
from imgbuild.build.targets import image_target
from imgbuild.core.errors import CheckFailedError, ImgbuildError, InputError
from imgbuild.core.project import Project
from imgbuild.core.settings import Settings, base_setting
from imgbuild.dockerfile.labels import INPUT_DIGEST, INPUT_PARTS, NAME, REPOSITORY
from imgbuild.dockerfile.render import dockerfile_path
from imgbuild.engine.build import BuildTarget
from imgbuild.engine.steps import Step
from imgbuild.engine.types import Layer, StoredImage
from imgbuild.inputs.base import Base
from imgbuild.inputs.build_inputs import BuildInputs
from imgbuild.maintain import reproduction
from imgbuild.maintain.reproduction import RevisionReader, drop_unknown
from imgbuild.matrix.images import Image
from imgbuild.matrix.model import Matrix
from imgbuild.plan.changes import parts_label
from support.bench import EPOCH, EPOCH_SECONDS, INPUTS, NEW, SETTINGS, Bench
from support.fake_engine import FakeEngine
from support.project_copy import invoke, load_once
from support.saved_layers import STATUS, layer, pieces, saved

OLD_ID, NEW_ID = f"sha256:{'1' * 64}", f"sha256:{'2' * 64}"
TAG = "imgbuild/tensorflow:2.2-cpu"
REVISION = "org.opencontainers.image.revision"
SYSTEM = {"etc/a": b"1", "var/lib/dpkg/status": STATUS.format(version="2.36-9").encode()}
MOVED = {"etc/a": b"2", "var/lib/dpkg/status": STATUS.format(version="2.36-10").encode()}


@dataclass
class Reproducing:
    """An engine with an image; ``built`` are the layers of what is built, ``fails`` the end of it.

    A layer's diff id is its name here.
    """

    bench: Bench
    project: Project
    layers: dict[str, bytes] = field(default_factory=dict)
    built: tuple[str, ...] = ("base", "system")
    new_id: str = NEW_ID
    fails: BaseException | None = None
    variables: list[str] = field(default_factory=lambda: ["PATH=/bin"])
    targets: list[BuildTarget] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    before: dict[str, StoredImage] = field(default_factory=dict)
    said: str = ""
    settings: Settings = SETTINGS
    builders: tuple[str, ...] = ()

    @property
    def engine(self) -> FakeEngine:
        return self.bench.engine

    def labels(self) -> dict[str, str]:
        digest = self.bench.context.digests[NEW]
        return {
            NAME: NEW,
            REPOSITORY: "imgbuild/tensorflow",
            INPUT_DIGEST: digest.total,
            INPUT_PARTS: parts_label(digest),
            "org.opencontainers.image.created": EPOCH,
            "org.opencontainers.image.base.name": "debian",
            "org.opencontainers.image.base.digest": "sha256:abc",
            "imgbuild.input.base": "OCI layout",
            "imgbuild.input.cpython": "local prefix",
        }

    def store(
        self, image_id: str, layers: Sequence[str], tags: Sequence[str] = (), **more: str
    ) -> None:
        labels = {**self.labels(), **more}
        image = StoredImage(image_id, (*tags,), labels, 1, EPOCH_SECONDS, (*layers,))
        self.engine.stored[image_id] = image
        steps = [Layer(None, 10**6, f"RUN make {name}") for name in reversed(layers)]
        self.engine.histories[image_id] = steps

    def prepare_inputs(self, _images: object, settings: Settings, *_: object) -> BuildInputs:
        self.settings = settings
        return self.bench.context.inputs

    def make(self, _buildx: object, target: BuildTarget, **more: Any) -> tuple[str, float]:
        self.targets = [target]
        self.texts = [one.dockerfile.read_text() for one in (target, *target.needs)]
        assert more["epoch"] == EPOCH_SECONDS
        if self.new_id == NEW_ID:
            self.store(NEW_ID, self.built)
        export = Step(1, "exporting to image", "done", written={"writing image": self.new_id})
        more["show"](export)
        if self.fails:
            raise self.fails
        return self.new_id, 0.0

    def configuration(self, image_id: str) -> Mapping[str, Any]:
        env = self.variables if image_id == self.new_id else ["PATH=/bin"]
        return {"Env": env, "Labels": self.engine.stored[image_id].labels, "Cmd": ["bash"]}

    def save(self, image_id: str) -> Iterator[bytes]:
        return pieces(saved(self.layers[one] for one in self.engine.stored[image_id].layers))

    @contextmanager
    def opened(
        self, project: Project, images: Any, options: BuildOptions, _: object, *, lock: bool
    ) -> Iterator[BuildContext]:
        self.builders = options.builders
        assert ([image.name for image in images], lock) == ([NEW], True)
        yield replace(self.bench.opened(), project=project, images=images)

    def __call__(self, *words: str, code: int = 0) -> tuple[str, str]:
        """Run the command, which ends so; return what it prints, and its error."""
        self.before = {**self.engine.stored}
        ran = invoke("verify", "--rebuild", *words, "--project", str(self.project.root), env={})
        error, self.said = ran.exception, ran.stderr
        if isinstance(error, ImgbuildError):
            assert error.exit_code == code
            return ran.stdout, str(error)
        assert ran.exit_code == code, ran.output
        return ran.stdout, ""

    def nothing_is_left(self) -> None:
        assert self.engine.stored == self.before
        assert not {"tag", "untag", "push"} & {*self.engine.calls}
        (mark,) = self.forgotten
        assert mark.startswith("description~=reproduce-")


@pytest.fixture
def reproducing(bench: Bench, project: Project, monkeypatch: pytest.MonkeyPatch) -> Reproducing:
    bench.context = replace(bench.context, images=bench.context.images[1:])
    made = Reproducing(bench, project)
    made.layers = {"base": layer({"bin/sh": b""}), "system": layer(SYSTEM), "moved": layer(MOVED)}
    made.store(OLD_ID, ("base", "system"), (TAG,))
    monkeypatch.setattr(reproduction, "load_matrix", load_once)
    monkeypatch.setattr(reproduction, "open_engine", lambda _: closing(made.engine))
    monkeypatch.setattr("imgbuild.engine.client.open_engine", lambda _: closing(made.engine))
    monkeypatch.setattr(reproduction, "open_context", made.opened)
    monkeypatch.setattr(reproduction, "prepare", lambda *_: ({NEW: {}}, {}))
    monkeypatch.setattr(reproduction, "prepare_inputs", made.prepare_inputs)
    monkeypatch.setattr(reproduction, "build_image", made.make)
    monkeypatch.setattr(
        reproduction, "forget_cache", lambda _, entries: made.forgotten.append(entries)
    )
    monkeypatch.setattr(made.engine, "configuration", made.configuration)
    monkeypatch.setattr(made.engine, "save", made.save)
    return made


THIS = ("--tf", "2.2", "--stack", "debian")


def test_the_same_image_stays(reproducing: Reproducing) -> None:
    """What is built is the image itself, which may have no name: nothing is removed."""
    reproducing.new_id = OLD_ID
    reproducing.store(OLD_ID, ("base", "system"))
    printed, _ = reproducing(OLD_ID, "--builder", "farm")
    assert "2 of 2 layers are the same. The configuration is the same." in printed
    assert reproducing.builders == ("farm",)
    reproducing.nothing_is_left()


def test_what_differs_is_named_and_the_exit_code_is_1(reproducing: Reproducing) -> None:
    reproducing.built, reproducing.variables = ("base", "moved"), ["PATH=/sbin"]
    printed, error = reproducing(*THIS, code=1)
    assert printed.splitlines()[2:] == [
        "  differs      1.0 MB  RUN make moved",
        "    etc/a: content",
        "    var/lib/dpkg/status: content",
        "  Debian package: libc6 2.36-9 → 2.36-10",
        "  configuration: variable PATH PATH=/bin → PATH=/sbin",
        "1 of 2 layers are the same. The configuration differs.",
    ]
    assert TAG in error
    reproducing.nothing_is_left()
    reproducing.built = ("base",)
    assert "RUN make system\n    etc/a: only before\n" in reproducing(*THIS, code=1)[0]
    files = {f"usr/{number}": b"" for number in range(30)}
    reproducing.layers |= {"system": layer(files), "moved": layer(files, mtime=7)}
    reproducing.built = ("base", "moved")
    said = "    and 20 more (see --json). All files: 30 time"
    assert said in reproducing(*THIS, code=1)[0]
    reproducing.built = ("base", "system")
    said = "2 of 2 layers are the same. The configuration differs."
    assert said in reproducing(*THIS, code=1)[0]


def test_the_platform_of_the_builder_is_handed_on(
    reproducing: Reproducing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It decides which base compiles for arm64."""
    told: list[object] = []

    def target(*inputs: Any, machine: str, **more: Any) -> BuildTarget:
        told.append(machine)
        return image_target(*inputs, machine=machine, **more)

    monkeypatch.setattr(reproduction, "image_target", target)
    reproducing.built, reproducing.variables = ("base",), ["PATH=/bin"]
    reproducing(*THIS, code=1)
    assert told == ["linux/amd64"]


def test_nothing_of_earlier_builds_is_used(reproducing: Reproducing) -> None:
    reproducing(*THIS)
    (target,) = reproducing.targets
    assert "horovod-wheel" not in target.contexts  # it is compiled
    assert [one.anew for one in (target, *target.needs)] == [True, True]
    mark = reproducing.forgotten[0].removeprefix("description~=")
    mounts = [line for line in reproducing.texts[0].splitlines() if "type=cache" in line]
    shared = [line for line in mounts if f"id={mark}-imgbuild-" not in line]
    assert len(mounts) - 5 > len(shared) > 0
    assert all("id=imgbuild-compiling," in line for line in shared)


@pytest.mark.parametrize("end", [KeyboardInterrupt(), CheckFailedError("a step failed")])
def test_an_end_before_the_comparison_leaves_nothing(
    reproducing: Reproducing, end: BaseException
) -> None:
    reproducing.fails = end
    reproducing(*THIS, code=1 if isinstance(end, CheckFailedError) else 130)
    assert NEW_ID not in reproducing.engine.stored
    reproducing.nothing_is_left()


def test_what_cannot_be_reproduced(reproducing: Reproducing) -> None:
    """It is not there, of others, or named twice."""
    del reproducing.engine.stored[OLD_ID]
    reproducing.engine.stored["other"] = StoredImage("other", ("me/x:1",), {})
    for words in (THIS, ("me/x:1",), (TAG, "--tf", "2.2")):
        _, error = reproducing(*words, code=2)
        facts = (words[0], "HOST/REPOSITORY", "cannot be combined")
        assert any(fact in error for fact in facts)
    assert reproducing.targets == []


def test_inputs_that_cannot_be_had_are_named(reproducing: Reproducing) -> None:
    base = Base("debian@sha256:def", "sha256:def", "registry")
    reproducing.store(OLD_ID, ("base", "system"), (TAG,), **{REVISION: f"{'1' * 40}-dirty"})
    inputs = replace(INPUTS, bases={"debian-12": base}, uv_version="0.14")
    reproducing.bench.change(inputs=inputs)
    printed, _ = reproducing(*THIS, "--json", code=1)
    checkout, base_change, uv = json.loads(printed)[0]["lacking"]
    assert checkout.startswith(f"the checkout: {'1' * 40}: ")
    assert (base_change, uv) == ("base: sha256:abc → sha256:def", "uv: 0.13.8 → 0.14")
    assert all(lacking in reproducing.said for lacking in (checkout, base_change, uv))


def test_a_commit_of_anybody_is_not_built(
    reproducing: Reproducing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An image's label may name a commit that was only fetched."""

    def refuse(_: Project, reference: str) -> None:
        raise InputError(f"{reference}: not in the history of this checkout.")

    monkeypatch.setattr(reproduction, "open_revision", refuse)
    reproducing.store(OLD_ID, ("base", "system"), (TAG,), **{REVISION: "1" * 40})
    reproducing.bench.change(inputs=replace(INPUTS, uv_version="0.14"))
    printed, _ = reproducing(*THIS, "--json", code=1)
    (checkout, _) = json.loads(printed)[0]["lacking"]
    assert "not in the history" in checkout


def test_committed_dockerfile_counts_as_it_is(
    project: Project, images: dict[str, Image], tmp_path: Path
) -> None:
    """This imgbuild may render another one, and the matrix may have had other locks."""
    image, own = images[NEW], Project(tmp_path)
    reader = RevisionReader(own)
    reader.require_locks(image)
    with pytest.raises(InputError, match="Dockerfile is missing or cannot be read"):
        reader.dockerfile(image)
    committed = dockerfile_path(image, project.dockerfiles).read_text("utf-8")
    path = dockerfile_path(image, own.dockerfiles)
    path.parent.mkdir(parents=True)
    path.write_text(committed.replace("FROM base AS os", "FROM base AS system"))
    assert {"system"} <= {*reader.dockerfile(image).stages}


def test_settings_that_an_older_matrix_lacks_are_left_out(matrix: Matrix) -> None:
    """Settings are this machine's, not the commit's."""
    mirrors = {"elsewhere": "https://mirror.example.org/x", "debian": "https://mirror.example.org/"}
    python = {"from": "prefix", "path": "/python"}
    sections = {
        "mirrors": mirrors,
        "cpython": {"3.6.15": python, "3.0.1": python},
        "base": {"debian-12": {"from": "bootstrap"}, "debian-1": {"from": "bootstrap"}},
    }
    known = drop_unknown(Settings.model_validate(sections), matrix)
    assert {*known.mirrors} == {"debian"}
    assert {*known.cpython} == {"3.6.15"}
    assert {*known.base} == {"debian-12"}


@pytest.mark.parametrize("there", [True, False])
def test_inputs_come_from_where_the_labels_say(reproducing: Reproducing, *, there: bool) -> None:
    own = Settings.model_validate(
        {
            "base": {"debian-12": {"from": "layout", "path": "/base"}},
            "cpython": {"3.6.15": {"from": "prefix", "path": "/python"}},
            "substitutes": {"x.tar": "f" * 64},
        }
    )
    reproducing.bench.change(settings=own)
    reproducing(*THIS)
    assert reproducing.settings == own.model_copy(update={"substitutes": {}})
    base = f"r.example/debian@sha256:{'d' * 64}"
    name, _, digest = base.partition("@")
    labels = {
        "imgbuild.input.base": "registry",
        "org.opencontainers.image.base.name": name,
        "org.opencontainers.image.base.digest": digest,
        "imgbuild.input.cpython": "source",
        "imgbuild.input.substitutes": "SHA256_X",
    }
    reproducing.store(OLD_ID, ("base", "system"), (TAG,), **labels)
    reproducing.engine.registry = {base: StoredImage("base", (base,))} if there else {}
    netrc = {"ca": Path("/ca.pem"), "netrc": Path("/netrc")}
    inputs = replace(reproducing.bench.context.inputs, secrets=netrc)
    reproducing.bench.change(inputs=inputs)
    printed, _ = reproducing(*THIS, "--json", code=1)  # its labels are others
    substituted = json.loads(printed)[0]["substituted"]
    line = f"the base image {base}, from the image's label"
    assert substituted == ([line] if there else [])
    assert (line in reproducing.said) is there
    (target,) = reproducing.targets
    assert ("netrc" in target.secrets) is not there, "its programs run in these steps"
    pulled = base_setting("registry", image=base)
    used = {"base": {"debian-12": pulled} if there else own.base, "cpython": {}}
    assert reproducing.settings == own.model_copy(update=used)
    assert (f"the base image {base}: " in reproducing.said) is not there
    for odd in ("r.example/x y", "debian", "--x"):  # the last two are of Docker Hub, or nobody's
        labels["org.opencontainers.image.base.name"] = odd
        reproducing.store(OLD_ID, ("base", "system"), (TAG,), **labels)
        reproducing.engine.calls.clear()
        reproducing(*THIS, code=1)
        assert f"the base image {odd}@" in reproducing.said
        assert "pull" not in reproducing.engine.calls
    labels = {"imgbuild.input.base": "bootstrapped"}
    reproducing.store(OLD_ID, ("base", "system"), (TAG,), **labels)
    reproducing(*THIS, code=1)
    assert reproducing.settings.base["debian-12"].source == "bootstrap"
    unmade = {"debian-12": Base("", None, "bootstrapped")}
    reproducing.bench.change(inputs=replace(inputs, bases=unmade))
    _, error = reproducing(*THIS, code=3)
    assert "base: {debian-12: {from: bootstrap}}" in error
    assert "imgbuild doctor --write" in error
