"""The Dockerfile of an extension, and what becomes of its build on an engine in memory."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from imgbuild.core.errors import CheckFailedError, InputError, MachineError
from imgbuild.core.project import Project
from imgbuild.core.settings import Settings
from imgbuild.core.sources import Source
from imgbuild.dockerfile.stages import Dockerfile
from imgbuild.engine.build import BuildTarget
from imgbuild.engine.failure import BuildFailedError
from imgbuild.engine.types import ARM64, StoredImage, machine_platform
from imgbuild.extend.base_image import BaseImage, family_base, inspect_base, local_name
from imgbuild.extend.extended import (
    build_extension,
    extension_dockerfile,
    requested_names,
    short_set,
)
from imgbuild.extend.extension import parse_extension
from imgbuild.extend.requirement_files import image_facts
from imgbuild.inputs.base import Base
from imgbuild.locks.lockfile import Lock, parse_lock
from imgbuild.matrix.images import Image, for_other_architecture
from imgbuild.net.signing import Trust
from imgbuild.suites.catalog import read_suites, select_required
from imgbuild.suites.container import ImageContents, TestTarget
from imgbuild.suites.results import Report
from imgbuild.suites.store import RecordedExtension
from support.bench import NEW, OLD, Bench
from support.releases import release_of

SUITES = Path(__file__).parents[2] / "image"
CPU = {"variant": "cpu", "tensorflow": "2.2.3", "mpi_flavour": "openmpi"}
TAG = "me/train:1"
LOCK = parse_lock(
    f"# request: sha256:{'0' * 64}\nkeras==2.3.1 \\\n    --hash=sha256:{'1' * 64}\n", "x"
)
Read = Callable[[dict[str, str]], None]


@pytest.fixture
def base(images: dict[str, Image], project: Project) -> BaseImage:
    return family_base(images[NEW], project)


def test_the_family_base_is_its_lock_and_horovod(base: BaseImage) -> None:
    assert (base.reference, base.system) == ("imgbuild/tensorflow:2.2-cpu", "debian-12")
    assert (base.python, base.platform) == ("3.6.15", "x86_64-manylinux_2_36")
    assert (base.packages["numpy"], base.packages["horovod"]) == ("1.18.5", "0.19.5")
    release = f"{release_of('2.2')}+imgbuild"
    assert base.stubs == {"horovod": "0.19.5", "tensorflow": release, "tensorflow-gpu": release}


def test_packages_are_installed_by_hash(
    base: BaseImage, images: dict[str, Image], project: Project
) -> None:
    file = Source("Keras.whl", "https://m.example/a%2Bb/Keras.whl", "1" * 64)
    local = Source("own.tar.gz", "file:///home/own.tar.gz", "2" * 64)
    values = (parse_extension({}), base, LOCK, (), images[NEW], project)
    text = extension_dockerfile(*values, distributions=[file, local])
    assert f"\nADD --checksum=sha256:{'1' * 64} {file.url} /Keras.whl\n" in text
    assert ("# own.tar.gz" in text, "/home" in text) == (True, False)
    assert f"keras==2.3.1 \\\n    --hash=sha256:{'1' * 64}\nEND_OF_FILE\n" in text
    assert '--require-hashes --requirement "$here/packages.txt"' in text
    steps = re.findall(r"\nRUN .*", text)
    assert [step.startswith("\nRUN --network=none ") for step in steps] == [True, True]
    assert "type=secret" not in text, "code of packages runs in one of these steps"


@pytest.mark.parametrize(
    "url", ["https://me:pw@m.example/x.whl", "https://m.example/$x.whl", "https://m.example/x y"]
)
def test_an_address_is_no_dockerfile(
    base: BaseImage, images: dict[str, Image], project: Project, url: str
) -> None:
    file = Source("x.whl", url, "1" * 64)
    values = (parse_extension({}), base, LOCK, (), images[NEW], project)
    with pytest.raises(MachineError, match=r"address of x\.whl"):
        extension_dockerfile(*values, distributions=[file])


def test_a_printed_dockerfile_names_a_local_base_by_its_id(base: BaseImage) -> None:
    """By a tag: BuildKit takes no id, and of a name without registry a stranger's image."""
    local = replace(base, id=f"sha256:{'a' * 64}").local_name
    assert local == f"local.invalid/imgbuild/tensorflow:{'a' * 64}"
    assert local_name("me/own") == "local.invalid/me/own:latest"
    assert local_name(f"me/own@sha256:{'a' * 64}") == f"local.invalid/me/own:{'a' * 64}"
    assert local_name("h.example:5000/ml/own:1") == "h.example:5000/ml/own:1"


@pytest.mark.parametrize("user", ["", "1000"])
def test_programs_of_a_base_get_no_secrets_for_apt(
    base: BaseImage, images: dict[str, Image], project: Project, user: str
) -> None:
    archive = Base("debian@sha256:abc", "sha256:abc", "registry")
    extension = parse_extension({"apt": ["libsndfile1", "git=1:2.39.*"], "env": {"A": "1"}})
    foreign = replace(base, user=user)
    what = (extension, foreign, None, (), images[NEW], project)
    text = extension_dockerfile(*what, archive=archive)
    stages = Dockerfile(text).stages
    assert [one.line for one in stages["archive"].instructions] == [
        "FROM debian@sha256:abc AS archive"
    ]
    steps = {
        name: [one.line for one in stage.instructions if one.line.startswith("RUN ")]
        for name, stage in stages.items()
    }
    (download,) = steps.pop("archives")
    assert "apt-download /run/status /archives" in download
    assert "type=secret,id=netrc" in download
    others = [line for lines in steps.values() for line in lines]
    assert len(others) == 2
    for line in others:
        assert line.startswith("RUN --network=none ")
        assert "type=secret" not in line
        assert "type=cache" not in line, "what it writes would be used by other builds"


@dataclass
class Extending:
    """An engine with the base; ``fails`` is the stage that does not build."""

    bench: Bench
    base: BaseImage
    folder: Path
    fails: str = ""
    targets: list[BuildTarget] = field(default_factory=list)
    #: What the base was called, by its id, when a stage was built.
    named: list[str] = field(default_factory=list)
    #: The files of each build context.
    sent: list[list[str]] = field(default_factory=list)

    def make(self, _buildx: object, target: BuildTarget, **_: object) -> tuple[str, float]:
        self.targets.append(target)
        files = target.context.rglob("*")
        self.sent.append(sorted(str(path.relative_to(target.context)) for path in files))
        found = self.bench.engine.inspect(target.contexts["base"].partition("://")[2])
        self.named.append(found.id if found else "")
        if target.target == self.fails:
            raise CheckFailedError("exit code 1")
        image_id = f"sha256:{target.target}"
        labels = {"imgbuild.extends": self.base.name, **target.labels}
        self.bench.engine.stored[image_id] = StoredImage(image_id, (), labels, 10**9 + 5)
        return image_id, 0.0

    def build(self, lock: Lock = LOCK, **values: Any) -> tuple[int, Report | None]:
        extension = parse_extension({"tag": TAG, **values})
        return build_extension(
            extension,
            self.base,
            lock,
            (),
            self.bench.context,
            distributions=self.folder / "distributions",
            folder=self.folder,
            requested=["keras", "numpy"],
        )

    @property
    def stored(self) -> dict[str, tuple[str, ...]]:
        return {one.id: one.tags for one in self.bench.engine.stored.values()}


@pytest.fixture
def extending(
    bench: Bench, base: BaseImage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Extending:
    made = Extending(bench, base, tmp_path)
    stored = StoredImage("sha256:base", (base.reference,), size=10**9)
    bench.engine.stored[stored.id] = stored
    monkeypatch.setattr("imgbuild.extend.extended.build_image", made.make)
    return made


BASE_ALONE = {"sha256:base": ("imgbuild/tensorflow:2.2-cpu",)}


def test_it_is_built_on_the_base_tested_and_tagged(
    extending: Extending, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The suites expect what was added, and no more."""
    expected: list[Any] = []

    def suites(target: TestTarget, *more: Any) -> Report:
        expected.append(target.expected)
        return extending.bench.suites(target, *more)

    monkeypatch.setattr("imgbuild.suites.session.run_suites", suites)
    size, report = extending.build()
    assert size == 5
    assert extending.stored == {**BASE_ALONE, "sha256:extended": (TAG,)}
    (target,) = extending.targets
    assert target.contexts["base"].startswith("docker-image://local.invalid/imgbuild/temporary:")
    assert extending.named == ["sha256:base"], "whatever its name means by then"
    assert target.secrets == {"ca": Path("/ca.pem")}
    assert expected[0]["packages"] == {**extending.base.packages, "keras": "2.3.1"}
    assert expected[0]["requested"] == {"keras": "2.3.1"}, "the base has NumPy"
    assert expected[0]["name"] == NEW
    assert report
    assert report.ok
    assert extending.build(test="none")[1] is None
    assert extending.bench.tested == [TAG]


@pytest.mark.parametrize("test", ["short", "all", "none"])
def test_label_says_which_suites_ran(extending: Extending, test: str) -> None:
    _, report = extending.build(test=test)
    assert extending.targets[0].labels["imgbuild.tested"] == test
    ran = {one.suite for one in report.suites} if report else set()
    short = {"pins", "contents", "libraries", "imports"}
    facts = {**CPU, "requested": {"x": "1"}}
    every = {suite.name for suite in select_required(read_suites(SUITES), facts)}
    assert ran == {"short": short, "all": every, "none": set()}[test]


@pytest.mark.parametrize(
    ("locked", "options", "suites"),
    [
        ("own==1", {}, "short"),
        ("pyyaml==6", {}, "all"),
        ("pyyaml==6", {"test": "short"}, "short"),
    ],
)
def test_all_suites_run_if_a_package_is_replaced(
    extending: Extending, locked: str, options: dict[str, str], suites: str
) -> None:
    text = f"# request: sha256:{'0' * 64}\n{locked} \\\n    --hash=sha256:{'0' * 64}\n"
    extending.build(parse_lock(text, "own.lock.txt"), **options)
    assert extending.targets[0].labels["imgbuild.tested"] == suites


def test_short_set_of_other_additions_imports_nothing() -> None:
    assert short_set(SUITES, {**CPU, "requested": {}}) == ("contents", "libraries", "pins")


def test_foreign_base_is_labelled_as_untested(extending: Extending) -> None:
    extending.base = replace(extending.base, image=None)
    assert extending.build(test="all")[1] is None
    assert extending.targets[0].labels["imgbuild.tested"] == "none"


def test_printed_dockerfile_claims_no_test(
    base: BaseImage, images: dict[str, Image], project: Project
) -> None:
    """The base can be an extension with a label of its own."""
    text = extension_dockerfile(
        parse_extension({"test": "all"}), base, LOCK, (), images[NEW], project
    )
    assert 'imgbuild.tested="none"' in text


def test_requested_names_are_packages() -> None:
    lines = (
        "Keras==2.3.1",
        "-c scipy<1.5",
        f"dist/own_code-1.0-py3-none-any.whl --hash=sha256:{'0' * 64}",
    )
    assert requested_names([*lines, "pandas[excel]>=1; python_version<'4'"]) == (
        "keras",
        "own-code",
        "pandas",
    )


def test_the_context_has_only_what_is_copied(extending: Extending) -> None:
    for name in ("app.py", "private"):
        (extending.folder / name).touch()
    extending.build(test="none", copy=["app.py:/opt/app.py"])
    extending.build(test="none", env={"A": "1"})
    assert extending.sent == [["app.py"], []]


@pytest.mark.parametrize("name", ["{}:1", "{}:1@sha256:d", "{}@sha256:d"])
@pytest.mark.parametrize("repository", ["own", "registry.example.org:5000/ml/own"])
def test_the_digest_is_that_of_the_registry(
    extending: Extending, name: str, repository: str
) -> None:
    reference, digests = name.format(repository), ("other@sha256:e", f"{repository}@sha256:d")
    stored = StoredImage("sha256:base", (reference,), digests=digests)
    extending.bench.engine.stored["sha256:base"] = stored
    extending.base = replace(extending.base, reference=reference)
    extending.build(test="none")
    assert extending.targets[0].labels["org.opencontainers.image.base.digest"] == "sha256:d"


def test_another_user_is_added_after_the_suites(extending: Extending) -> None:
    extending.build(user="1000")
    assert [one.target for one in extending.targets] == ["extended", "final"]
    assert extending.stored == {**BASE_ALONE, "sha256:final": (TAG,)}


@pytest.mark.parametrize("fails", ["extended", "final", "suites"])
def test_what_fails_leaves_nothing(extending: Extending, fails: str) -> None:
    extending.fails = fails
    extending.bench.faulty |= {TAG} if fails == "suites" else set()
    with pytest.raises(CheckFailedError, match=f"exit code 1|suites of {NEW} did not pass in it"):
        extending.build(user="1000")
    assert extending.stored == BASE_ALONE


@pytest.mark.parametrize(
    ("labels", "left"), [({"imgbuild.extends": "x"}, False), ({"mine": "x"}, True)]
)
def test_the_predecessor_goes_if_it_was_an_extension(
    extending: Extending, labels: dict[str, str], left: bool
) -> None:
    extending.bench.engine.stored["sha256:old"] = StoredImage("sha256:old", (TAG,), labels)
    extending.build()
    assert ("sha256:old" in extending.stored) is left


CONTENTS = ImageContents((), None, None, "3.11.4", "", (), ("debian", "12"), glibc="2.36")


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Read:
    """Return how to say which packages an image has."""

    def give(packages: dict[str, str]) -> None:
        contents = replace(CONTENTS, packages=packages)
        monkeypatch.setattr("imgbuild.extend.base_image.read_contents", lambda *_: contents)

    return give


@pytest.mark.parametrize(
    ("packages", "bound"), [({"tensorflow": "2.9.0"}, "<0"), ({"numpy": "1.26.0"}, None)]
)
def test_a_foreign_tensorflow_is_not_replaced(
    bench: Bench, read: Read, packages: dict[str, str], bound: str | None
) -> None:
    read(packages)
    bench.engine.stored["sha256:own"] = StoredImage("sha256:own", ("own:1",))
    found = inspect_base("own:1", bench.context)
    assert found.companions.get("intel-tensorflow") == bound
    assert found.movable == {}


def test_a_foreign_base_is_pulled_and_read(bench: Bench, read: Read) -> None:
    read({"numpy": "1.26.0"})
    reference = "registry.example.org/own:1"
    bench.engine.registry[reference] = StoredImage("sha256:own", (reference,), user="jovyan")
    found = inspect_base(reference, bench.context)
    facts = (found.name, found.python, found.system, found.user, found.image)
    assert facts == (reference, "3.11.4", "debian-12", "jovyan", None)
    assert found.stubs == {"numpy": "1.26.0"}
    assert "pulling registry.example.org/own:1" in bench.said


@pytest.mark.parametrize(
    ("name", "version"), [("num(py", "1"), ("x" * 90, "1\nRequires-Dist: y"), ("numpy", ".*")]
)
def test_packages_that_pip_cannot_know_are_refused(
    bench: Bench, read: Read, name: str, version: str
) -> None:
    read({name: version})
    bench.engine.stored["sha256:own"] = StoredImage("sha256:own", ("own:1",))
    with pytest.raises(CheckFailedError, match=r"own:1 has the package '"):
        inspect_base("own:1", bench.context)


def test_a_base_for_another_platform_is_refused(bench: Bench, read: Read) -> None:
    read({"numpy": "1.26.0"})
    own = StoredImage("sha256:own", ("own:1",), platform="linux/riscv64")
    bench.engine.stored["sha256:own"] = own
    with pytest.raises(InputError, match=r"own:1 is for linux/riscv64.* linux/amd64 and linux/arm"):
        inspect_base("own:1", bench.context)


def test_packages_are_chosen_for_the_platform_of_the_base(bench: Bench, read: Read) -> None:
    read({"numpy": "1.26.0"})
    own = StoredImage("sha256:own", ("own:1",), platform=ARM64)
    bench.engine.stored["sha256:own"] = own
    base = inspect_base("own:1", bench.context)
    assert base.target.machine == "aarch64"
    assert base.platform == "aarch64-manylinux_2_36"
    environment = image_facts(base).environment
    assert environment
    assert environment["platform_machine"] == "aarch64"


def test_image_of_the_matrix_is_known_for_arm64(
    images: dict[str, Image], project: Project, bench: Bench, read: Read
) -> None:
    image = for_other_architecture(images["tf-2.15-cpu-debian"])
    assert image
    family = family_base(image, project)
    assert family.engine_platform == ARM64
    assert family.packages["tensorflow-cpu-aws"] == image.tensorflow
    assert family.stubs["tensorflow"] == f"{image.tensorflow}+imgbuild"
    read(dict(family.packages))
    own = StoredImage("sha256:own", ("own:1",), {"imgbuild.name": image.name}, platform=ARM64)
    bench.engine.stored["sha256:own"] = own
    assert inspect_base("own:1", bench.context).image == image


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_extension_is_built_for_the_platform_of_its_base(
    extending: Extending, monkeypatch: pytest.MonkeyPatch, machine: str
) -> None:
    """This machine's uv is used only if the platform runs it."""
    monkeypatch.setattr("imgbuild.inputs.build_inputs.platform.machine", lambda: "x86_64")
    context = extending.bench.context
    inputs = replace(context.inputs, uv=Path("/own-uv"))
    extending.bench.context = replace(context, inputs=inputs)
    extending.base = replace(extending.base, machine=machine)
    extending.build(test="none")
    (target,) = extending.targets
    assert target.platform == machine_platform(machine)
    assert ("uv" in target.contexts) is (machine == "x86_64")


@pytest.mark.parametrize("digests", [(), ("registry.example.org/own@sha256:d",)])
def test_a_base_needs_a_signature_by_any_name(
    bench: Bench, read: Read, monkeypatch: pytest.MonkeyPatch, digests: tuple[str, ...]
) -> None:
    """With `verify` in the settings, unless it was made here."""

    def refuse(_: Trust, reference: str) -> None:
        raise CheckFailedError(f"{reference}: it has no signature.")

    monkeypatch.setattr(Trust, "require_signature", refuse)
    read({})
    bench.engine.stored["sha256:own"] = StoredImage("sha256:own", ("own:1",), digests=digests)
    bench.change(settings=Settings.model_validate({"verify": {"key": "/etc/cosign.pub"}}))
    with pytest.raises(CheckFailedError, match="own:1 was not built on this machine"):
        inspect_base("own:1", bench.context)
    bench.context.store.record_extension("sha256:own")
    assert inspect_base("own:1", bench.context).id == "sha256:own"


def test_an_extension_is_no_image_of_the_matrix(extending: Extending) -> None:
    """It inherits the labels of its base."""
    extending.build(test="none")
    store = extending.bench.context.store
    assert store.was_made_here("sha256:extended")
    assert not store.is_own("sha256:extended")


@pytest.mark.parametrize("user", ["", "1000"])
def test_extension_keeps_what_its_suites_found(extending: Extending, user: str) -> None:
    """For the image with the tag, although the suites ran before the user was set."""
    extending.build(**({"user": user} if user else {"env": {"A": "1"}}))
    image_id, store = f"sha256:{'final' if user else 'extended'}", extending.bench.context.store
    kept = store.extension(image_id)
    assert kept
    assert kept.family == NEW
    assert kept.expected["packages"] == {**extending.base.packages, "keras": "2.3.1"}
    assert "pins" in kept.suites
    assert store.results(image_id)["pins"].verdict == "passed"


def test_extension_without_suites_expects_nothing(extending: Extending) -> None:
    extending.build()
    extending.build(test="none")
    store = extending.bench.context.store
    assert store.extension("sha256:extended") == RecordedExtension(NEW, {}, (), cached_base=True)
    extending.base = replace(extending.base, image=None)
    extending.build()
    assert store.extension("sha256:extended") == RecordedExtension("", {}, (), cached_base=True)


def test_record_says_whether_the_base_is_known(extending: Extending) -> None:
    """An extension of an extension knows as little as the first one."""
    store = extending.bench.context.store

    def is_cached() -> bool:
        extending.build(test="none")
        kept = store.extension("sha256:extended")
        assert kept
        return kept.cached_base

    assert is_cached()
    store.record_extension("sha256:base", NEW, cached_base=True)
    assert is_cached()
    store.record_extension("sha256:base", NEW)
    assert not is_cached()


def test_base_may_be_an_extension(
    extending: Extending, read: Read, images: dict[str, Image], project: Project
) -> None:
    """Its packages stay, the suites of the family's image apply, and labels name all packages."""
    own = {"own": "1.0", "pandas": "1.1.5", "tf-slim": "1.1.0"}
    read(packages := {**extending.base.packages, **own})
    pins = " ".join(f"{name}=={version}" for name, version in own.items())
    labels = {"imgbuild.name": NEW, "imgbuild.added.pip": pins}
    reference = "registry.example.org/team/train:1"
    extending.bench.engine.stored["sha256:one"] = StoredImage("sha256:one", (reference,), labels)
    found = inspect_base(reference, extending.bench.context)
    assert (found.name, found.packages, found.added) == (reference, packages, own)
    assert found.image == images[NEW]
    assert found.movable == {}, "also of companions that it has"
    assert found.companions["tensorflow-addons"]
    assert own.items() <= found.stubs.items(), "no index need have a wheel that was a file"
    extending.base = found
    extending.build(env={"A": "1"})
    kept = extending.bench.context.store.extension("sha256:extended")
    assert kept
    assert kept.expected["packages"] == {**packages, "keras": "2.3.1"}
    text = extension_dockerfile(parse_extension({}), found, LOCK, (), images[NEW], project)
    assert f'imgbuild.added.pip="{pins} keras==2.3.1"' in text
    assert f'imgbuild.extends="{reference}"' in text


@pytest.mark.parametrize(("added", "suites"), [("own", "short"), ("pyyaml", "all")])
def test_replaced_package_of_the_base_is_tested_with_all_suites(
    extending: Extending, read: Read, added: str, suites: str
) -> None:
    """The base may have been made without suites."""
    read({**extending.base.packages, added: "9"})
    labels = {"imgbuild.name": NEW, "imgbuild.added.pip": f"{added}==9"}
    reference = "registry.example.org/team/train:1"
    extending.bench.engine.stored["sha256:one"] = StoredImage("sha256:one", (reference,), labels)
    extending.base = inspect_base(reference, extending.bench.context)
    extending.build(env={"A": "1"})
    assert extending.targets[0].labels["imgbuild.tested"] == suites


def test_extension_with_other_packages_is_foreign(
    bench: Bench, read: Read, base: BaseImage
) -> None:
    """Somebody installed more on it, or its label lies."""
    read({**base.packages, "keras": "2.3.1", "six": "1.99"})
    labels = {"imgbuild.name": NEW, "imgbuild.added.pip": "keras==2.3.1"}
    bench.engine.stored["sha256:own"] = StoredImage("sha256:own", ("own:1",), labels)
    assert inspect_base("own:1", bench.context).image is None


def test_a_base_with_onbuild_is_refused(bench: Bench, read: Read) -> None:
    """A build on it would begin with its instructions, which could mount a secret."""
    read({})
    bench.engine.stored["sha256:own"] = StoredImage("sha256:own", ("own:1",))
    steps = ["RUN --mount=type=secret,id=netrc cat /run/secrets/netrc"]
    bench.engine.configurations["sha256:own"] = {"OnBuild": steps}
    with pytest.raises(CheckFailedError, match="own:1 has ONBUILD instructions"):
        inspect_base("own:1", bench.context)
    assert "start" not in bench.engine.calls


@pytest.mark.parametrize("user", ["0\nRUN id", "$HOME", "me me", "0:0:0"])
def test_a_user_that_is_no_word_is_refused(bench: Bench, read: Read, user: str) -> None:
    read({})
    bench.engine.stored["sha256:own"] = StoredImage("sha256:own", ("own:1",), user=user)
    with pytest.raises(CheckFailedError, match="own:1: its user '"):
        inspect_base("own:1", bench.context)


@pytest.mark.parametrize(
    ("name", "more", "known"),
    [
        (NEW, {}, True),
        (NEW, {"numpy": "1.18.99"}, False),
        (NEW, {"keras": "2.3.1"}, False),
        (OLD, {}, False),
        ("", {}, False),
    ],
)
def test_an_image_is_of_the_matrix_by_name_and_packages(  # noqa: PLR0913, PLR0917 - a case
    bench: Bench, read: Read, base: BaseImage, name: str, more: dict[str, str], known: bool
) -> None:
    read(packages := {**base.packages, **more})
    reference = "registry.example.org/ml:2.2-cpu"
    labels = {"imgbuild.name": name} if name else {}
    bench.engine.stored["sha256:own"] = StoredImage("sha256:own", (reference,), labels)
    found = inspect_base(reference, bench.context)
    assert (found.reference, found.packages) == (reference, packages)
    assert (found.image is not None) is known
    assert found.name == (NEW if known else reference)


def test_packages_for_builds_are_not_in_the_image(
    base: BaseImage, images: dict[str, Image], project: Project
) -> None:
    archive = Base("debian@sha256:abc", "sha256:abc", "registry")
    extension = parse_extension({"build_apt": ["g++"], "apt": ["libsndfile1"]})
    what = (extension, base, LOCK, (), images[NEW], project)
    stages = Dockerfile(extension_dockerfile(*what, archive=archive)).stages
    lines = {name: [one.line for one in stages[name].instructions] for name in stages}
    assert lines["packages"][0] == "FROM builder AS packages"
    assert lines["extended"][0] == "FROM system AS extended"
    (download,) = (line for line in lines["build-archives"] if line.startswith("RUN "))
    assert "g++" in download
    others = {name: lines[name] for name in lines if name != "build-archives"}
    assert not [name for name in others if any("g++" in line for line in others[name])]
    assert all("--network=none" in line for line in lines["builder"] if line.startswith("RUN "))


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_system_packages_come_from_the_archive_of_the_platform(
    extending: Extending, monkeypatch: pytest.MonkeyPatch, machine: str
) -> None:
    asked: list[str] = []

    def provide(_name: str, _system: str, _context: object, platform: str) -> Base:
        asked.append(platform)
        return Base("debian@sha256:abc", "sha256:abc", "registry")

    monkeypatch.setattr("imgbuild.extend.extended.provide_archive_base", provide)
    extending.base = replace(extending.base, machine=machine)
    extending.build(apt=["libsndfile1"])
    assert asked == [{"x86_64": "linux/amd64", "aarch64": "linux/arm64"}[machine]]
    assert {target.platform for target in extending.targets} == {*asked}


def test_same_paths_are_told_in_one_paragraph(
    extending: Extending, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "Not installed: a 1 and b 1 contain x.py, each with different content."

    def fail(*_: object, **__: object) -> None:
        raise BuildFailedError(
            "x",
            step="RUN sh install",
            cause="exit code: 1",
            tail=("resolved", said),
            log=Path("log"),
        )

    monkeypatch.setattr("imgbuild.extend.extended.build_image", fail)
    with pytest.raises(CheckFailedError) as told:
        extending.build()
    assert str(told.value) == said
    assert extending.stored == BASE_ALONE
