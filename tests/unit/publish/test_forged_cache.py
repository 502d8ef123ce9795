"""Who can write a cache publishes nothing: what was taken from it does not pass the push gate."""

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
from imgbuild.registry.repository import OCI_MANIFEST
from imgbuild.suites.results import Report, ReportStore, SuiteResult

NOT_BUILT, RERUN = "nothing says that it was built here", "--rerun"
LAYERS = ("sha256:" + "e" * 64,)
LISTS = dict.fromkeys(("failures", "skipped", "not_asked"), ())
PASSED = {"verdict": "passed", "passed": 9, "seconds": 1.0, "before": EPOCH, **LISTS}


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
            document = {"config": {"digest": config}, "layers": []}
            manifest = self.server.add_manifest(tag, document, OCI_MANIFEST)
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
            keys = self.bench.context.suite_keys[image.name] if suites else {}
            report = {suite: {**PASSED, "key": key} for suite, key in keys.items()}
            store.keep_verdicts(total, LAYERS, report, manifest)

    def refusal(self, *allowed: str) -> str:
        with pytest.raises(CheckFailedError) as caught:
            approve(self.bench.opened(), allowed)
        return str(caught.value)


@pytest.fixture
def forged(bench: Bench) -> ForgedCache:
    cache = ForgedCache(bench, MemoryRegistry("registry.example.org/ci/cache"))
    bench.stores = RemoteStores((RemoteStore(cache.server, bench.said.append),))
    return cache


def test_a_forged_cache_is_tagged_here_and_not_published(forged: ForgedCache) -> None:
    """Not even after `imgbuild test --rerun`; where it is allowed, it says where it came from."""
    forged.put()
    bench, place = forged.bench, forged.server.name
    assert {str(one.item.action) for one in bench.build()} == {"tag"}
    assert not bench.tested
    lines = forged.refusal().splitlines()
    assert [line.partition(" ")[0] for line in lines] == [OLD, NEW]
    for line in lines:
        for fact in (NOT_BUILT, "`docker rmi", place, RERUN, "--allow-cached"):
            assert fact in line
    context = bench.opened()
    for image in approve(context, {ALLOW_CACHED}):
        assert {one["found"] for one in image.report.values()} == {place}
        assert len(image.allowed) == 2
        assert image.packages == locked_packages(image.image, context.project.locks)
        passed = context.store.passed(image.stored.id, context.suite_keys[image.name])
        report = Report(image.name, image.stored.id, "", tuple(passed.values()))
        assert {one["found"] for one in report.as_json()["suites"]} == {place}
        assert f"pins: result found in {place}" in report.notes
    for item in bench.plan():
        keys = bench.context.suite_keys[item.image.name]
        results = [SuiteResult(suite, 1, (), (), 1.0) for suite in keys]
        bench.context.store.save(item.image_id or "", keys, results)
    refusal = forged.refusal()
    assert (NOT_BUILT in refusal, RERUN in refusal) == (True, False)


@pytest.mark.parametrize("tagged", [True, False])
def test_an_image_with_forged_labels_is_built(forged: ForgedCache, tagged: bool) -> None:
    """After `docker pull` or `docker load` of it: imgbuild does not know where it is from."""
    forged.put(suites=False)
    bench = forged.bench
    bench.stores = None
    foreign = [*bench.engine.registry.values()]
    for item, image in zip(bench.plan(), foreign, strict=True):
        bench.engine.stored[image.id] = replace(image, tags=item.image.tags if tagged else ())
    results = bench.build()
    assert {str(one.item.action) for one in results} == {"build"}
    assert not {one.image_id for one in results} & {one.id for one in foreign}
    for item in bench.plan():
        found = bench.engine.inspect(item.image.tags[0])
        assert found
        assert found.id == item.image_id
        assert bench.context.store.was_built_here(found.id)


def test_suites_that_ran_here_prove_no_image_that_was_not_built_here(forged: ForgedCache) -> None:
    forged.put(suites=False)
    bench = forged.bench
    assert {one.state for one in bench.build()} == {"done"}
    assert sorted(bench.tested) == [OLD, NEW]
    refusal = forged.refusal("--allow-substituted")
    assert refusal.count(NOT_BUILT) == len(bench.engine.stored)
    assert RERUN not in refusal


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
    document = {"config": {"digest": config}, "layers": []}
    for tag in [tag for tag in forged.server.tagged if tag.startswith("input-")]:
        forged.server.add_manifest(tag, document, OCI_MANIFEST)
    bench = forged.bench
    assert {str(one.item.action) for one in bench.build()} == {"build"}
    assert all(path.stem.isalnum() for path in bench.context.store.folder.iterdir())
    assert not [*bench.context.state.parent.rglob("elsewhere*.json")]
