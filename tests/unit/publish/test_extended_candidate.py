"""Which images of `imgbuild extend` may be published, and under which names."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from imgbuild.core.errors import CheckFailedError, InputError
from imgbuild.dockerfile.labels import STANDIN, TAKEN_WHEEL
from imgbuild.engine.types import StoredImage
from imgbuild.publish.extended_candidate import (
    ExtendedCandidate,
    approve_extended,
    check_names,
    check_repository,
)
from imgbuild.publish.record import read_published
from imgbuild.suites.catalog import read_suites, suite_keys
from imgbuild.suites.results import Check, Report, SuiteResult, suite_result
from support.bench import NEW, Bench
from support.extended_images import DIGEST, ID, LABELS, REFERENCE
from support.memory_registry import MemoryRegistry
from support.published_images import RECORD, publish
from support.suite_results import changed

SUBSTITUTED, NO_GPU = "--allow-substituted", "--allow-skipped gpu_runs"
EXPECTED: Mapping[str, Any] = {
    "name": NEW,
    "tensorflow": "2.2.3",
    "variant": "cpu",
    "mpi_flavour": "openmpi",
    "packages": {"numpy": "1.18.5", "keras": "2.3.1"},
}
PASSED = suite_result("pins", passed=3, seconds=1.0)
CONTENTS = changed(PASSED, suite="contents")


@dataclass
class Extending:
    """An engine with one extended image, and what this machine remembers of it."""

    bench: Bench

    def stored(self, **labels: str) -> None:
        image = StoredImage(ID, (REFERENCE,), {**LABELS, **labels}, layers=(DIGEST,))
        self.bench.engine.stored[ID] = image

    def tested(self, *results: SuiteResult, expected: Mapping[str, Any] = EXPECTED) -> None:
        """Keep such results, and that these suites had to pass."""
        store, report = self.bench.context.store, Report("train", ID, "", results)
        store.save(ID, self.keys(expected), results)
        store.record_extension(ID, NEW, report, expected)

    def keys(self, expected: Mapping[str, Any] = EXPECTED) -> dict[str, str]:
        return suite_keys(read_suites(self.bench.context.project.suites), expected)

    def approve(self, *allowed: str) -> ExtendedCandidate:
        (candidate,) = approve_extended([REFERENCE], self.bench.context, allowed)
        return candidate

    def refusal(self, *allowed: str) -> str:
        with pytest.raises(CheckFailedError) as caught:
            self.approve(*allowed)
        return str(caught.value)


@pytest.fixture
def extending(bench: Bench) -> Extending:
    """Give an image that passed two suites."""
    made = Extending(bench)
    made.stored()
    made.tested(PASSED, CONTENTS)
    return made


def test_candidate_names_base_lock_and_suites(extending: Extending) -> None:
    found = extending.approve()
    assert found.name == "train:1"
    assert found.tags("20261127.1").immutable == "1-20261127.1"
    assert found.tags().moving == ("1",)
    assert found.base == f"registry.example.org/ml/tensorflow:2.2-cpu@{DIGEST}"
    assert found.lock == LABELS["imgbuild.added.lock"]
    assert (found.variant, found.stack, found.pins) == ("cpu", "debian", {"tensorflow": "2.2.3"})
    assert found.packages == EXPECTED["packages"]
    assert found.snapshots == {"debian": "20261101T000000Z"}
    assert [*found.report] == ["contents", "pins"]
    usual = {one.name for one in read_suites(extending.bench.context.project.suites)}
    assert {"horovod", "tensorflow"} <= {*found.not_run} < usual - {"contents", "pins"}


def test_input_digest_is_that_of_the_content(extending: Extending) -> None:
    """The base's own is among the labels, and would let a build take the extension for it."""
    base = f"sha256:{'a' * 64}"
    digests = []
    for label in ("one", "two"):
        extending.stored(**{"imgbuild.input-digest": base, "mine": label})
        digests.append(extending.approve().input_digest)
    assert len({*digests, base}) == 3


@pytest.mark.parametrize(
    ("label", "value"),
    [
        ("imgbuild.input.base", "bootstrapped"),
        ("imgbuild.input.cpython", "local prefix"),
        ("imgbuild.input.substitutes", "SHA256_A"),
    ],
)
def test_what_the_base_needs_an_option_for(extending: Extending, label: str, value: str) -> None:
    extending.stored(**{label: value})
    assert f"({SUBSTITUTED} publishes it)" in extending.refusal()
    assert len(extending.approve(SUBSTITUTED).allowed) == 1


def test_stand_ins_are_never_published(extending: Extending) -> None:
    extending.stored(**{STANDIN: "for tests"})
    assert "never published (for tests)" in extending.refusal(SUBSTITUTED, NO_GPU)


def test_untested_extension_is_refused(extending: Extending) -> None:
    extending.bench.context.store.record_extension(ID, NEW)
    assert "without --no-test" in extending.refusal(SUBSTITUTED, NO_GPU)


def test_every_suite_that_had_to_pass_counts(extending: Extending) -> None:
    """In its present form: a suite that has changed since proves nothing."""
    failed = changed(CONTENTS, failures=(Check(test="test_x", message="no"),))
    extending.tested(PASSED, failed)
    assert "suite contents failed: test_x" in extending.refusal()
    extending.tested(PASSED, CONTENTS)
    other = dict.fromkeys(("pins", "contents"), "of an earlier form")
    extending.bench.context.store.save(ID, other, [PASSED])
    assert "suite pins ran with older code" in extending.refusal()


def test_suite_that_ran_later_is_published_or_refused(extending: Extending) -> None:
    """`imgbuild test` may have run others; one that failed counts whatever its form."""
    store = extending.bench.context.store
    horovod = changed(PASSED, suite="horovod")
    store.save(ID, extending.keys(), [horovod])
    found = extending.approve()
    assert "horovod" in found.report
    assert "horovod" not in found.not_run
    store.save(ID, {"horovod": "another form"}, [horovod])
    assert "horovod" in extending.approve().not_run
    failed = changed(horovod, failures=(Check(test="test_ranks", message="boom"),))
    store.save(ID, {"horovod": "another form"}, [failed])
    assert "suite horovod failed: test_ranks" in extending.refusal()


def test_missing_gpu_needs_its_option(extending: Extending) -> None:
    gpu = {**EXPECTED, "variant": "gpu"}
    skipped = suite_result("gpu_runs", skipped=(Check(test="a", message="no driver"),), seconds=0.1)
    extending.tested(PASSED, skipped, expected=gpu)
    assert f"suite gpu_runs skipped: no driver ({NO_GPU} publishes it)" in extending.refusal()
    assert extending.approve(NO_GPU).allowed == ("suite gpu_runs skipped: no driver",)


def test_image_of_somebody_else_is_refused(extending: Extending) -> None:
    """Anybody can write its labels; and an image of the matrix is none of `imgbuild extend`."""
    unknown = "sha256:" + "2" * 64
    extending.bench.engine.stored = {unknown: StoredImage(unknown, (REFERENCE,), LABELS)}
    assert "no record that `imgbuild extend` built it" in extending.refusal()
    extending.bench.context.store.record_extension(unknown, NEW)
    family = {name: text for name, text in LABELS.items() if name != "imgbuild.extends"}
    extending.bench.engine.stored = {unknown: StoredImage(unknown, (REFERENCE,), family)}
    assert "no record" in extending.refusal()


def test_foreign_base_has_no_suites(extending: Extending) -> None:
    extending.stored(**{"imgbuild.name": "", "imgbuild.pin.tensorflow": "1"})
    extending.bench.context.store.record_extension(ID)
    found = extending.approve()
    assert (found.variant, found.stack, found.not_run, found.packages) == ("", "", (), {})


def test_base_with_the_wheel_of_a_repository_is_refused(extending: Extending) -> None:
    """An earlier version took it; also if somebody installed more on an image of the family."""
    extending.stored(**{TAKEN_WHEEL: "0123456789abcdef"})
    for _ in range(2):
        refusal = extending.refusal(SUBSTITUTED, NO_GPU)
        assert "build the base again, then run `imgbuild extend` again" in refusal
        extending.bench.context.store.record_extension(ID)


def test_base_that_the_matrix_lacks_is_refused(extending: Extending) -> None:
    extending.bench.context.store.record_extension(ID, "tf-9.9-cpu-debian")
    assert "no tf-9.9-cpu-debian" in extending.refusal()


@pytest.mark.parametrize(
    "reference",
    [
        "me/train",
        f"me/train:1@{DIGEST}",
        "me/other:1",
        "train.example.org/other:1",
        *(f"me/train:{tag}" for tag in ("push-1", "input-1", "verdicts-1", "wheel-1")),
        *(
            f"me/train:{tag}"
            for tag in ("1.record", "1-index", "1-20261127.1", "20261127.1", "x" * 110)
        ),
        f"me/train:sha256-{'1' * 64}.sig",
    ],
)
def test_name_that_a_repository_cannot_have_is_refused(reference: str) -> None:
    check_names([REFERENCE, "train:2", "registry.example.org:5000/me/train:3"], "h/team/train")
    with pytest.raises(InputError, match="train"):
        check_names([REFERENCE, reference], "h.example/team/train")


def test_two_images_of_one_name_are_refused() -> None:
    with pytest.raises(InputError, match="train:1"):
        check_names([REFERENCE, "you/train:1"], "h.example/team/train")


def test_repository_of_a_family_is_refused() -> None:
    """The tags of an extension could be the family's moving tags."""
    registry = MemoryRegistry()
    base = f"imgbuild/tensorflow:2.2-cpu@{DIGEST}"
    publish(registry, "1-20261127.1", image="app:1", moving=("1",), base=base)
    check_repository(read_published(registry), [REFERENCE])
    publish(registry, RECORD.tag)
    with pytest.raises(InputError, match=RECORD.image):
        check_repository(read_published(registry), [REFERENCE])


def test_base_of_unknown_origin_is_refused(extending: Extending) -> None:
    extending.stored()
    extending.tested(PASSED)
    store, report = extending.bench.context.store, Report("train", ID, "", (PASSED,))
    store.record_extension(ID, NEW, report, EXPECTED, cached_base=True)
    assert "the origin of its base is unknown" in extending.refusal(SUBSTITUTED, NO_GPU)
