"""Base images that no registry gives are made before a build, which only names the command."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from imgbuild.build.bases import make_bases
from imgbuild.core.errors import CheckFailedError, ImgbuildError, MachineError
from imgbuild.core.settings import Settings, base_setting, load_settings
from imgbuild.engine.faults import EngineUnusableError, answered_error, engine_error
from imgbuild.engine.types import StoredImage
from imgbuild.inputs.base import BOOTSTRAPPED, Base
from imgbuild.inputs.build_inputs import prepare_inputs
from imgbuild.matrix.images import Image
from imgbuild.plan.plan import Action
from support.bench import NEW, OLD, Bench

MADE = Base("imgbuild/base:debian-12-b", f"sha256:{'b' * 64}", BOOTSTRAPPED, Path("/base"))
LOOKUP = 'Get "https://registry.test/v2/": dial tcp: lookup registry.test: no such host'
NO_ANSWER = answered_error(LOOKUP, None, refused=False)
BOOTSTRAP = Settings(base={"debian-12": base_setting("bootstrap")})


@dataclass
class Unsettled:
    """A machine whose settings name no base image, and which has none.

    ``made`` are those that were made here, and whether anew; ``pin`` is the matrix's.
    """

    bench: Bench
    pin: str
    patch: pytest.MonkeyPatch
    made: list[bool] = field(default_factory=list)

    def make(self, settings: Settings | None = None, *, refresh: bool = False) -> Settings:
        """Make what is missing, as `doctor --write`, `--refresh` and `--make-bases` do."""
        context = self.bench.context
        settings = settings or load_settings(Path("none.yaml"))
        images, engine, log = context.images, context.engine, context.log
        return make_bases(images, settings, engine, log, refresh=refresh)

    def use(self, settings: Settings) -> None:
        """Let the next builds have these settings, and the inputs that they give."""
        context = self.bench.context
        inputs = prepare_inputs(context.images, settings, context.project)
        self.bench.change(settings=settings, inputs=inputs)

    def pulls_fail(self, error: ImgbuildError) -> None:
        self.patch.setattr(self.bench.engine, "pull", Mock(side_effect=error))

    def later(self, image: str | None = None) -> str:
        """Return where a later command takes the image from."""
        settings = load_settings(Path("none.yaml"))
        return settings.base_for("debian-12", image or self.pin).source


@pytest.fixture
def machine(
    bench: Bench, images: dict[str, Image], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Unsettled:
    machine = Unsettled(bench, str(images[NEW].os.image), monkeypatch)

    def bootstrap(*_: object, refresh: bool, **__: object) -> Base:
        machine.made.append(refresh)
        return MADE

    def find(*_: object) -> Base | None:
        return MADE if machine.made else None

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    monkeypatch.setattr("imgbuild.inputs.build_inputs.find_bootstrapped", find)
    monkeypatch.setattr("imgbuild.build.bases.bootstrap_base", bootstrap)
    monkeypatch.setattr("imgbuild.inputs.build_inputs.prepare_uv", lambda _: Path("/uv"))
    return machine


@pytest.mark.parametrize(
    "said",
    [
        LOOKUP,
        'Get "https://r/v2/": net/http: TLS handshake timeout',
        'Get "https://r/v2/": tls: failed to verify certificate: x509: certificate has expired',
        'Get "https://r/v2/": http: server gave HTTP response to HTTPS client',
    ],
)
def test_base_of_a_silent_registry_is_made_and_kept(machine: Unsettled, said: str) -> None:
    machine.pulls_fail(answered_error(said, None, refused=False))
    settings = machine.make()
    assert machine.made == [False]
    assert f"({said})" in machine.bench.said[-1]
    assert settings == load_settings(Path("none.yaml"))
    assert machine.later() == "bootstrap"
    assert machine.later(f"debian@sha256:{'0' * 64}") == "registry", "the matrix moved on"
    asked = [*machine.bench.said]
    assert machine.make() == settings
    assert machine.bench.said == asked, "no registry is asked again"


def test_refresh_asks_registries_again(machine: Unsettled) -> None:
    machine.pulls_fail(NO_ANSWER)
    machine.make()
    machine.make(refresh=True)
    assert machine.made == [False, True]
    machine.patch.setattr(machine.bench.engine, "pull", Mock())
    machine.make(refresh=True)
    assert (machine.made, machine.later()) == ([False, True], "registry")


def test_the_same_reference_for_another_platform_is_pulled(machine: Unsettled) -> None:
    """A digest can name a list of platforms, of which the engine has one."""
    pull = Mock()
    machine.patch.setattr(machine.bench.engine, "pull", pull)
    for platform, calls in (("linux/amd64", 0), ("linux/arm64", 1)):
        stored = StoredImage("sha256:base", (machine.pin,), platform=platform)
        machine.patch.setattr(machine.bench.engine, "inspect", lambda _, stored=stored: stored)
        machine.make()
        assert pull.call_count == calls
    assert pull.call_args.kwargs["platform"] == "linux/amd64"


REFUSALS = (
    "pull access denied for debian, repository does not exist or may require 'docker login'",
    "toomanyrequests: You have reached your pull rate limit",
    "manifest for debian@sha256:abd6 not found: manifest unknown: manifest unknown",
)


@pytest.mark.parametrize(
    ("pull_error", "error", "said"),
    [
        *((answered_error(text, None, refused=True), CheckFailedError, text) for text in REFUSALS),
        (engine_error(ConnectionRefusedError("x"), None), EngineUnusableError, "x"),
    ],
    ids=["denied", "limited", "unknown", "no-engine"],
)
def test_no_base_is_made_after_a_refusal(
    machine: Unsettled, pull_error: ImgbuildError, error: type[ImgbuildError], said: str
) -> None:
    """A registry that refuses, and an engine that is lost."""
    machine.pulls_fail(pull_error)
    with pytest.raises(error) as caught:
        machine.make()
    assert type(caught.value) is error
    assert said in str(caught.value)
    assert (machine.made, machine.later()) == ([], "registry")


def test_a_base_that_cannot_be_made_is_not_kept(machine: Unsettled) -> None:
    machine.pulls_fail(NO_ANSWER)
    failing = Mock(side_effect=MachineError("this machine lacks mmdebstrap"))
    machine.patch.setattr("imgbuild.build.bases.bootstrap_base", failing)
    with pytest.raises(MachineError, match="lacks mmdebstrap"):
        machine.make()
    assert machine.later() == "registry"


def test_a_build_makes_no_base_and_names_the_command(machine: Unsettled) -> None:
    machine.use(BOOTSTRAP)
    assert {item.action for item in machine.bench.plan()} == {Action.BUILD}, "a plan needs none"
    with pytest.raises(MachineError, match="imgbuild doctor --write") as caught:
        machine.bench.run()
    assert (caught.value.exit_code, machine.made, machine.bench.baked) == (3, [], [])
    machine.use(machine.make(BOOTSTRAP))
    assert machine.made == [False]
    base = machine.bench.context.inputs.bases["debian-12"]
    assert (base.digest, base.origin) == (MADE.digest, "bootstrapped")
    machine.patch.setattr("imgbuild.build.bases.load_base", lambda *_: None)
    machine.patch.setattr("imgbuild.build.prepare.fetch_downloads", lambda *_: (DOWNLOADS, {}))
    assert {result.state for result in machine.bench.build()} == {"done"}


DOWNLOADS: dict[str, dict[str, Path]] = {OLD: {}, NEW: {}}


def test_a_build_without_a_registry_names_the_command(machine: Unsettled) -> None:
    machine.pulls_fail(NO_ANSWER)
    machine.patch.setattr("imgbuild.build.prepare.fetch_downloads", lambda *_: (DOWNLOADS, {}))
    machine.use(Settings())
    failure = machine.bench.run().failure()
    assert isinstance(failure, MachineError)
    assert LOOKUP in str(failure)
    assert "imgbuild doctor --write" in str(failure)
    assert (machine.made, machine.bench.baked) == ([], [])
    machine.use(machine.make())
    machine.patch.setattr("imgbuild.build.bases.load_base", lambda *_: None)
    assert {result.state for result in machine.bench.build()} == {"done"}
    machine.use(load_settings(Path("none.yaml")))
    assert {result.state for result in machine.bench.build()} == {"up to date"}
    assert len(machine.bench.baked) == 2


def test_the_settings_and_ubuntu_are_left_to_the_build(
    machine: Unsettled, images: dict[str, Image]
) -> None:
    other = base_setting("registry", image=f"x@sha256:{'0' * 64}")
    settings = Settings(base={"debian-12": other})
    assert machine.make(settings) == settings
    machine.bench.use(images["tf-2.2-gpu-ubuntu"])
    assert machine.make() == Settings()
    assert (machine.made, machine.bench.engine.calls) == ([], [])


def test_bases_are_made_once_for_each_system(machine: Unsettled) -> None:
    context = machine.bench.context
    machine.bench.context = replace(context, images=(*context.images, *context.images))
    machine.make(BOOTSTRAP)
    assert (machine.made, machine.bench.engine.calls) == ([False], [])
