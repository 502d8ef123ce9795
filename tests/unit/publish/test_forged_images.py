"""Write access to a repository publishes nothing: the push gate refuses pulled images."""

import json
from dataclasses import dataclass, replace

import pytest

from imgbuild.build.pull import PullSource
from imgbuild.core.errors import CheckFailedError
from imgbuild.engine.types import StoredImage
from imgbuild.matrix.tags import input_tag
from imgbuild.net.repository import OCI_MANIFEST
from imgbuild.publish.candidate import approve
from imgbuild.suites.store import ReportStore
from support.bench import EPOCH, EPOCH_SECONDS, NEW, OLD, Bench
from support.memory_registry import MemoryRegistry

NOT_BUILT = "there is no record that this machine built it"
LAYERS = ("sha256:" + "e" * 64,)
LISTS = dict.fromkeys(("failures", "skipped", "not_asked"), ())
PASSED = {"verdict": "passed", "passed": 9, "seconds": 1.0, "before": EPOCH, **LISTS}


@dataclass
class ForgedRepository:
    """A repository with images that nobody built."""

    bench: Bench
    server: MemoryRegistry

    def put(self) -> None:
        """Put images there, made from nothing but the checkout."""
        for number, item in enumerate(self.bench.plan()):
            image, total, tag = item.image, item.digest.total, input_tag(item.digest.total)
            config = f"sha256:{number:063}f"
            document = {"config": {"digest": config}, "layers": []}
            self.server.add_manifest(tag, document, OCI_MANIFEST)
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

    def refusal(self, *allowed: str) -> str:
        with pytest.raises(CheckFailedError) as caught:
            approve(self.bench.opened(), allowed)
        return str(caught.value)


@pytest.fixture
def forged(bench: Bench) -> ForgedRepository:
    made = ForgedRepository(bench, MemoryRegistry("registry.example.org/ml/tensorflow"))
    bench.source = PullSource(made.server, bench.said.append)
    made.put()
    return made


def test_forged_images_are_tagged_here_and_not_published(forged: ForgedRepository) -> None:
    """Suites that ran here prove no image that was not built here; the refusal says what to do."""
    bench = forged.bench
    assert {one.state for one in bench.build()} == {"done"}
    assert sorted(bench.tested) == [OLD, NEW]
    lines = forged.refusal("--allow-substituted").splitlines()
    assert [line.partition(" ")[0] for line in lines] == [OLD, NEW]
    for line in lines:
        for fact in (NOT_BUILT, "`docker rmi --force", "`imgbuild build`", "`verify`"):
            assert fact in line


def test_unsigned_results_of_an_earlier_version_count_as_none(forged: ForgedRepository) -> None:
    """It kept results that it found in a repository: the suites run here instead."""
    bench = forged.bench
    bench.build()
    store = bench.context.store
    for image_id in bench.engine.stored:
        path = store.folder / f"{image_id.removeprefix('sha256:')}.json"
        document = json.loads(path.read_text())
        for entry in document["suites"].values():
            entry["found"] = forged.server.name
        path.write_text(json.dumps({**document, "built": True}))
    refusal = forged.refusal("--allow-substituted")
    assert refusal.count("no suite was run on this image") == len(bench.engine.stored)
    bench.tested.clear()
    bench.build()
    assert sorted(bench.tested) == [OLD, NEW]
    assert len(approve(bench.opened(), {"--allow-substituted"})) == len(bench.engine.stored)


@pytest.mark.parametrize("tagged", [True, False])
def test_an_image_with_forged_labels_is_built(forged: ForgedRepository, tagged: bool) -> None:
    """After `docker pull` or `docker load` of it: imgbuild does not know where it is from."""
    bench = forged.bench
    bench.source = None
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


def test_an_image_that_is_built_here_instead_is_published(forged: ForgedRepository) -> None:
    bench = forged.bench
    bench.build()
    store = bench.context.store
    assert not any(map(store.was_built_here, bench.engine.stored))
    bench.engine.stored.clear()
    bench.source = None
    same_id = f"sha256:{0:064}"  # a build may give an image the id of one that was pulled
    store.record_pull(same_id, forged.server.name)
    bench.build()
    assert same_id in bench.engine.stored
    assert all(map(store.was_built_here, bench.engine.stored))
    assert NOT_BUILT not in forged.refusal()  # the bench's inputs are substituted
    assert len(approve(bench.opened(), {"--allow-substituted"})) == len(bench.engine.stored)


def test_interrupted_pull_leaves_no_record_of_a_build(
    forged: ForgedRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
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
def test_forged_configuration_writes_no_outside_file(
    forged: ForgedRepository, config: object
) -> None:
    document = {"config": {"digest": config}, "layers": []}
    for tag in [tag for tag in forged.server.tagged if tag.startswith("input-")]:
        forged.server.add_manifest(tag, document, OCI_MANIFEST)
    bench = forged.bench
    assert {str(one.item.action) for one in bench.build()} == {"build"}
    assert all(path.stem.isalnum() for path in bench.context.store.folder.iterdir())
    assert not [*bench.context.state.parent.rglob("elsewhere*.json")]
