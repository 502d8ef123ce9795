"""Before a bake: the base image that the matrix pins, and enough space on the disk."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from bench import NEW, OLD, Bench, engine_has

from imgbuild.build import prepare
from imgbuild.build.context import BuildContext
from imgbuild.build.prepare import GIB, needed_bytes, with_bases
from imgbuild.engine.faults import EngineUnusableError, answered_error, engine_error
from imgbuild.errors import CheckFailedError, ImgbuildError, MachineError
from imgbuild.inputs import build_inputs
from imgbuild.inputs.oci_layout import BaseLayout
from imgbuild.matrix.images import Image
from imgbuild.plan.plan import Action
from imgbuild.settings import BootstrapBase, RegistryBase, Settings, load_settings

MADE = BaseLayout(Path("/base"), f"sha256:{'b' * 64}", "imgbuild/base:debian-12-b", "sha256:m")
LOOKUP = 'Get "https://registry.test/v2/": dial tcp: lookup registry.test: no such host'
NO_ANSWER = answered_error(LOOKUP, None, refused=False)


@dataclass
class Unsettled:
    """A machine whose settings name no base image, and which has none.

    ``made`` are those that were made here, and whether anew; ``pin`` is the matrix's.
    """

    bench: Bench
    pin: str
    patch: pytest.MonkeyPatch
    made: list[bool] = field(default_factory=list)

    def settle(self, context: BuildContext | None = None) -> BuildContext:
        """Return the context of a build that has its bases."""
        context = context or self.bench.context
        settings, inputs = with_bases(context.images, context)
        return replace(context, settings=settings, inputs=inputs)

    def pulls_fail(self, error: ImgbuildError) -> None:
        self.patch.setattr(self.bench.engine, "pull", Mock(side_effect=error))

    def later(self, image: str | None = None) -> str:
        """Return where a later command takes the image from."""
        settings = load_settings(self.bench.context.project.root / "none.yaml")
        return settings.base_for("debian-12", image or self.pin).source


@pytest.fixture
def machine(
    bench: Bench, images: dict[str, Image], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Unsettled:
    found = Unsettled(bench, str(images[NEW].os.image), monkeypatch)

    def bootstrap(*_: object, refresh: bool, **__: object) -> BaseLayout:
        found.made.append(refresh)
        return MADE

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    monkeypatch.setattr(build_inputs, "find_base", lambda *_: None)
    monkeypatch.setattr(build_inputs, "bootstrap_base", bootstrap)
    monkeypatch.setattr(build_inputs, "uv_context", lambda _: Path("/uv"))
    monkeypatch.setattr(prepare, "missing_packages", lambda _: [])
    bench.change(settings=Settings())
    return found


@pytest.mark.parametrize(
    "said",
    [
        LOOKUP,
        'Get "https://r/v2/": net/http: TLS handshake timeout',
        'Get "https://r/v2/": tls: failed to verify certificate: x509: certificate has expired',
        'Get "https://r/v2/": http: server gave HTTP response to HTTPS client',
    ],
)
def test_where_none_answers_it_is_made_here_and_that_is_remembered(
    machine: Unsettled, said: str
) -> None:
    machine.pulls_fail(answered_error(said, None, refused=False))
    context = machine.settle()
    base = context.inputs.bases["debian-12"]
    assert (base.digest, base.origin) == (MADE.image_id, "bootstrapped")
    assert machine.made == [False]
    assert machine.settle(context) == context
    assert f"({said})" in machine.bench.said[-1]
    assert machine.later() == "bootstrap"
    assert machine.later(f"debian@sha256:{'0' * 64}") == "registry", "the matrix moved on"
    Settings().remember_made()
    assert machine.later() == "registry"
    machine.bench.change(options=replace(machine.bench.context.options, refresh_base=True))
    machine.settle()
    assert machine.made == [False, True]


REFUSALS = (
    "pull access denied for debian, repository does not exist or may require 'docker login'",
    "toomanyrequests: You have reached your pull rate limit",
    "manifest for debian@sha256:abd6 not found: manifest unknown: manifest unknown",
)


@pytest.mark.parametrize(
    ("pull_error", "error", "facts"),
    [
        *((answered_error(one, None, refused=True), CheckFailedError, [one]) for one in REFUSALS),
        (engine_error(ConnectionRefusedError("x"), None), EngineUnusableError, []),
        (NO_ANSWER, MachineError, [LOOKUP, "install -y mmdebstrap uidmap"]),
    ],
    ids=["denied", "limited", "unknown", "no-engine", "no-tools"],
)
def test_without_the_registrys_base_none_is_made_where_that_is_no_answer_or_cannot_be(
    machine: Unsettled, pull_error: ImgbuildError, error: type[ImgbuildError], facts: list[str]
) -> None:
    """A registry that refuses, an engine that is lost, and a machine that lacks the tools."""
    machine.pulls_fail(pull_error)
    machine.patch.setattr(prepare, "missing_packages", lambda _: ["mmdebstrap", "uidmap"])
    with pytest.raises(error) as caught:
        machine.settle()
    assert type(caught.value) is error
    assert all(fact in str(caught.value) for fact in facts)
    assert (machine.made, machine.later()) == ([], "registry")


def test_an_image_on_the_base_made_here_is_up_to_date(machine: Unsettled) -> None:
    """Though its plan without that knowledge, on another cache, was to build it."""
    bench, before = machine.bench, machine.bench.context
    machine.pulls_fail(NO_ANSWER)
    machine.patch.setattr("imgbuild.build.pipeline.prepare", lambda *_: ({OLD: {}, NEW: {}}, {}))
    assert {one.state for one in bench.build()} == {"done"}
    Settings().remember_made()
    bench.context = before
    assert {one.action for one in bench.plan()} == {Action.BUILD}
    assert {one.state for one in bench.build()} == {"up to date"}
    assert len(bench.baked) == 2


def test_the_settings_and_ubuntu_are_left_to_the_build(
    machine: Unsettled, images: dict[str, Image]
) -> None:
    other = {"from": "registry", "image": f"x@sha256:{'0' * 64}"}
    for base in (BootstrapBase(), RegistryBase.model_validate(other)):
        context = replace(machine.bench.context, settings=Settings(base={"debian-12": base}))
        assert machine.settle(context) == context
    machine.bench.use(images["tf-2.2-gpu-ubuntu"])
    assert machine.settle() == machine.bench.context
    assert (machine.made, machine.bench.engine.calls) == ([], [])


def test_too_little_space_begins_no_build_and_a_full_disk_is_named_after_a_failure(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    usage, needed = "imgbuild.build.prepare.shutil.disk_usage", needed_bytes(bench.context.images)
    engine_has(monkeypatch, root_dir=str(tmp_path))
    monkeypatch.setattr(usage, Mock(return_value=Mock(free=needed - 1)))
    with pytest.raises(MachineError, match=rf"{needed / 1e9:.1f} GB .* 2 images"):
        bench.run()
    assert bench.baked == []
    monkeypatch.setattr(usage, Mock(side_effect=[Mock(free=needed), Mock(free=9 << 20)]))
    bench.broken = {OLD}
    assert "9 MB are free" in str(bench.run().failure())


def test_what_images_share_is_counted_once(images: dict[str, Image]) -> None:
    debian = [image for image in images.values() if image.os_name == "debian-12"]
    gpu = next(image for image in images.values() if image.variant == "gpu")
    assert needed_bytes() == needed_bytes(debian[:1]) == 4 * GIB
    assert needed_bytes(debian[:3]) == 5 * GIB
    assert needed_bytes([debian[0], gpu]) == 6 * GIB
    assert needed_bytes([*images.values()]) == 8 * GIB
