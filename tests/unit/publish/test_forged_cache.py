"""Who can write a cache publishes nothing: what was taken from it does not pass the push gate."""

import json
from dataclasses import dataclass, replace

import pytest
from bench import EPOCH, EPOCH_SECONDS, NEW, OLD, Bench
from memory_registry import MemoryRegistry

from imgbuild.build.artifact_store import ArtifactStore
from imgbuild.build.remote import RemoteStore, RemoteStores
from imgbuild.dockerfile.lockfile import locked_packages
from imgbuild.engine.types import StoredImage
from imgbuild.errors import CheckFailedError
from imgbuild.matrix.tags import input_tag
from imgbuild.publish.candidate import ALLOW_CACHED, approve
from imgbuild.registry.repository import OCI_MANIFEST, Manifest, digest_of
from imgbuild.registry.signing import trust_of
from imgbuild.settings import Settings, VerifySettings
from imgbuild.suites.results import Report, ReportStore, SuiteResult

NOT_BUILT, RERUN = "nothing says that it was built here", "--rerun"
LAYERS = ("sha256:" + "e" * 64,)
PASSED = {"verdict": "passed", "passed": 9, "failures": [], "skipped": [], "not_asked": []}


@dataclass
class ForgedCache:
    """A repository with images that nobody built; ``suites`` says whether with verdicts."""

    bench: Bench
    server: MemoryRegistry

    def put(self, *, suites: bool = True) -> None:
        """Put images there, made from nothing but the checkout."""
        store = ArtifactStore(self.server, print)
        for number, item in enumerate(self.bench.plan()):
            image, total, tag = item.image, item.digest.total, input_tag(item.digest.total)
            config = f"sha256:{number:063}f"
            content = json.dumps({"config": {"digest": config}, "layers": []}).encode()
            manifest = Manifest(digest_of(content), OCI_MANIFEST, content)
            self.server.manifests[manifest.digest] = manifest
            self.server.tagged[tag] = manifest.digest
            labels = {
                "imgbuild.name": image.name,
                "imgbuild.input-digest": total,
                "imgbuild.repository": image.repository,
                "imgbuild.input.base": "registry",
                "org.opencontainers.image.base.digest": str(image.os.image).split("@")[1],
                "imgbuild.input.cpython": "source",
                "org.opencontainers.image.created": EPOCH,
            }
            reference = f"{self.server.name}:{tag}"
            self.bench.engine.registry[reference] = StoredImage(
                config, (reference,), labels, 10**9, EPOCH_SECONDS, LAYERS
            )
            entry = {**PASSED, "seconds": 1.0, "before": EPOCH}
            keys = self.bench.context.suite_keys[image.name]
            report = {suite: {**entry, "key": key} for suite, key in keys.items()}
            store.keep_verdicts(total, LAYERS, report if suites else {}, manifest)

    def refusal(self, *allowed: str) -> str:
        with pytest.raises(CheckFailedError) as caught:
            approve(self.bench.opened(), allowed)
        return str(caught.value)


@pytest.fixture
def forged(bench: Bench) -> ForgedCache:
    cache = ForgedCache(bench, MemoryRegistry("registry.example.org/ci/cache"))
    bench.stores = RemoteStores((RemoteStore(cache.server, bench.said.append),))
    return cache


def _rerun(bench: Bench) -> None:
    """Keep what `imgbuild test --rerun` finds."""
    for item in bench.plan():
        keys = bench.context.suite_keys[item.image.name]
        results = [SuiteResult(suite, 1, (), (), 1.0) for suite in keys]
        bench.context.store.save(item.image_id or "", keys, results)


def test_a_forged_cache_is_tagged_here_and_not_published(forged: ForgedCache) -> None:
    forged.put()
    bench = forged.bench
    assert {str(one.item.action) for one in bench.build()} == {"tag"}
    assert not bench.tested
    lines = forged.refusal().splitlines()
    assert [line.partition(" ")[0] for line in lines] == [OLD, NEW]
    for line in lines:
        for fact in (NOT_BUILT, "`docker rmi", forged.server.name, RERUN, "--allow-cached"):
            assert fact in line
    _rerun(bench)
    assert RERUN not in forged.refusal()


def test_what_is_allowed_says_where_each_verdict_was_found(forged: ForgedCache) -> None:
    forged.put()
    forged.bench.build()
    for image in approve(forged.bench.opened(), {ALLOW_CACHED}):
        assert {one["found"] for one in image.report.values()} == {forged.server.name}
        assert len(image.allowed) == 2
        assert image.packages == locked_packages(image.image, forged.bench.context.project.locks)
        results = forged.bench.context.store.passed(
            image.image_id, forged.bench.context.suite_keys[image.name]
        )
        report = Report(image.name, image.image_id, "", tuple(results.values()))
        assert {one["found"] for one in report.as_json()["suites"]} == {forged.server.name}
        assert f"pins: result found in {forged.server.name}" in report.notes


def test_suites_that_ran_here_prove_no_image_of_a_cache(forged: ForgedCache) -> None:
    forged.put(suites=False)
    assert {one.state for one in forged.bench.build()} == {"done"}
    assert sorted(forged.bench.tested) == [OLD, NEW]
    refusal = forged.refusal()
    assert NOT_BUILT in refusal
    assert RERUN not in refusal


@pytest.mark.parametrize("tagged", [True, False])
def test_suites_that_ran_here_prove_no_image_that_somebody_put_into_the_engine(
    forged: ForgedCache, *, tagged: bool
) -> None:
    """By `docker pull` or `docker load`: imgbuild never saw where it is from."""
    forged.put(suites=False)
    bench = forged.bench
    for item, image in zip(bench.plan(), [*bench.engine.registry.values()], strict=True):
        tags = item.image.tags if tagged else ()
        bench.engine.stored[image.id] = replace(image, tags=tags)
    bench.stores = None
    assert {str(one.item.action) for one in bench.build()} == {"test"}
    assert sorted(bench.tested) == [OLD, NEW]
    refusal = forged.refusal("--allow-substituted")
    assert refusal.count(NOT_BUILT) == len(bench.engine.stored)


def test_an_image_that_is_built_here_instead_is_published(forged: ForgedCache) -> None:
    forged.put()
    bench = forged.bench
    bench.build()
    store = bench.context.store
    assert not any(map(store.was_built_here, bench.engine.stored))
    bench.engine.stored.clear()
    bench.stores = None
    same_id = f"sha256:{0:064}"  # a build may give an image the id of one that was taken
    store.import_results(same_id, {"pins": {}}, forged.server.name)
    bench.build()
    assert same_id in bench.engine.stored
    assert all(map(store.was_built_here, bench.engine.stored))
    refusal = forged.refusal()  # the bench's inputs are substituted
    assert "--allow-cached" not in refusal
    assert len(approve(bench.opened(), {"--allow-substituted"})) == len(bench.engine.stored)


def test_an_interrupt_after_a_pull_does_not_make_an_image_one_of_here(
    forged: ForgedCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    forged.put()
    bench = forged.bench

    def interrupted(*_: object, **_more: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ReportStore, "import_results", interrupted)
        with pytest.raises(KeyboardInterrupt):
            bench.build()
    assert bench.engine.stored
    for _ in range(2):
        assert NOT_BUILT in forged.refusal()
        bench.build()


@pytest.mark.parametrize("config", ["", "sha256:../../elsewhere", 7])
def test_a_manifest_with_an_odd_configuration_writes_no_report_elsewhere(
    forged: ForgedCache, config: object
) -> None:
    forged.put()
    content = json.dumps({"config": {"digest": config}, "layers": []}).encode()
    for tag in [tag for tag in forged.server.tagged if tag.startswith("input-")]:
        manifest = Manifest(digest_of(content), OCI_MANIFEST, content)
        forged.server.manifests[manifest.digest] = manifest
        forged.server.tagged[tag] = manifest.digest
    bench = forged.bench
    assert {str(one.item.action) for one in bench.build()} == {"build"}
    assert all(path.stem.isalnum() for path in bench.context.store.folder.iterdir())
    assert not [*bench.context.state.parent.rglob("elsewhere*.json")]


@pytest.mark.parametrize("trusted", ["awskms:///ours", "awskms:///theirs", None])
def test_what_was_signed_is_published_by_who_trusts_that_key(
    forged: ForgedCache, trusted: str | None
) -> None:
    """Of an image that is taken with its signed results; whoever else has it needs an option."""
    forged.put(suites=False)
    bench = forged.bench
    bench.build(test=False)
    ours = trust_of(Settings.model_validate({"verify": {"key": "awskms:///ours"}}))
    assert ours
    for item in bench.plan():
        keys = bench.context.suite_keys[item.image.name]
        entry = {**PASSED, "seconds": 1.0, "before": EPOCH}
        report = {suite: {**entry, "key": key} for suite, key in keys.items()}
        by = ours.fingerprint
        bench.context.store.import_results(item.image_id or "", report, "x", signed_by=by)
    verify = VerifySettings.model_validate({"key": trusted})
    bench.change(settings=bench.context.settings.model_copy(update={"verify": verify}))
    if trusted == "awskms:///ours":
        assert len(approve(bench.opened(), ())) == len(bench.engine.stored)
    else:
        assert forged.refusal().count("--allow-cached") == 2 * len(bench.engine.stored)
