"""The catalogue's page: what it says of each image, and that nothing in it is obeyed.

That it loads nothing is seen in a browser, in tests/e2e/test_catalog_page.py.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from imgbuild.catalog.entries import (
    CatalogEntry,
    changed_suites,
    name_stages,
    packed_layers,
    recorded_suites,
)
from imgbuild.catalog.page import page_file
from imgbuild.core.errors import InputError
from imgbuild.core.project import Project
from imgbuild.dockerfile.stages import Dockerfile
from imgbuild.engine.types import Layer
from imgbuild.matrix.images import Image
from imgbuild.matrix.load import load_matrix
from imgbuild.matrix.selection import find_image
from imgbuild.scan.findings import Scan, SecurityFinding
from imgbuild.suites.catalog import Suite, read_suites
from imgbuild.suites.results import Check, suite_result
from support.catalog_pages import BUILT, CHANGED, LAYERS, PUBLISHED, REPOSITORY, SUITES, entry, page
from support.catalog_pages import release as record
from support.memory_registry import MemoryRegistry
from support.project_copy import ROOT
from support.published_images import RECORD
from support.suite_results import stored

LOCKS = Project(ROOT).locks
CPU, INTEL = "tf-2.3-cpu-debian", "tf-2.3-cpu-debian-intelmpi"


class _Text(HTMLParser):
    """The words of a page, as people read them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.feed(text)

    def handle_data(self, data: str) -> None:
        self.words += data.split()


def said(entries: list[CatalogEntry], repository: str | None = REPOSITORY) -> str:
    return " ".join(_Text(page(entries, repository)).words)


@pytest.fixture
def of(images: dict[str, Image]) -> Callable[[str], CatalogEntry]:
    return lambda name: entry(images[name], LOCKS)


def test_an_image_that_is_neither_built_nor_published() -> None:
    image = find_image(load_matrix(ROOT / "matrix.yaml"), CPU)  # with its budget
    text = said([entry(image, LOCKS)], None)
    for part in (
        r"Size \u2264 \d+ MB Debian updates until 2028 ",
        "docker run --rm -it --pull never imgbuild/tensorflow:2.3-cpu Copy",
        r"The image is not published\. .+ Docker Hub",
        # A pin with its source, its reason and what was documented; a package of the lock.
        r"0\.20\.3 Python package index: horovod, .+ documentation says 0\.20\.0",
        r"\bnumpy 1\.\d+\.\d+",
    ):
        assert re.search(part, text), part
    assert "docker pull registry" not in text


def test_a_built_and_a_published_image(of: Callable[[str], CatalogEntry]) -> None:
    text = said([of(BUILT)])
    for part in (
        "799 MB in 4 layers",
        "660 MB COPY /out/ /",
        "nodes ranks on two nodes failed 2 checks 2026-11-20",
        "skipped: no driver",
        "tensorboard it serves no result",
        "built here",
        "The image is not published",
    ):
        assert part in text
    assert "tested here" not in text
    text, reference = said([of(PUBLISHED)]), f"{REPOSITORY}:2.2.0-gpu-20261120.1"
    for part in (
        f"docker pull {reference} Copy",
        f"docker run --rm -it --gpus all {reference} Copy",
        f"FROM {reference} Copy",
        "20261120.1 2026-11-20 , 1,235 MB 2.2.0-gpu-20261120.1 sha256:222",
        "Turing 7.5 Tesla T4, GeForce RTX 2080 supported",
        "cuda 10.1: NVIDIA CUDA Toolkit End User License Agreement",
    ):
        assert part in text
    assert "The image is not published" not in text
    assert text.index("20261120.1 2026-11-20") < text.index("20261101.1 2026-11-01")


def test_a_gpu_image_ran_only_if_its_suite_passed(of: Callable[[str], CatalogEntry]) -> None:
    suite, ran = Suite("gpu_runs", "it computes", None, ""), "ran on a real GPU"
    checks = [Check(test="test_two_gpus", message="one GPU")]
    for result in (SUITES[suite], suite_result("gpu_runs", failures=checks), None):
        assert ran not in said([replace(of(PUBLISHED), suites={suite: result})])
    for result in (
        suite_result("gpu_runs", passed=10, skipped=checks),
        suite_result("gpu_runs", passed=12),
    ):
        assert ran in said([replace(of(PUBLISHED), suites={suite: result})])


def test_a_gpu_image_names_the_gpus_of_the_matrix_that_it_ran_on(
    of: Callable[[str], CatalogEntry],
) -> None:
    assert "passed on an NVIDIA H200" in said([of("tf-2.18-gpu-debian")])
    assert "ran on a real GPU" not in said([of("tf-2.17-gpu-debian"), of("tf-2.18-cpu-debian")])


def test_the_last_scan_and_retired_releases(of: Callable[[str], CatalogEntry]) -> None:
    finding = SecurityFinding("openssl", "openssl", "1", "2", "open")
    scan = Scan(BUILT, "sha256:1", "2026-11-25", (finding,), "not asked: no network", (), ())
    retired = record(of(BUILT).image, retired="2026-11-24", retired_reason="a hole in OpenSSL")
    text = said([replace(of(BUILT), scan=scan, releases=(retired,))])
    for part in (
        "2026-11-25: 1 missing security fix",
        "not asked: no network",
        "retired on 2026-11-24: a hole in OpenSSL",
    ):
        assert part in text
    assert f"imgbuild scan {BUILT}" in said([of(BUILT)])


def test_text_of_the_matrix_is_text(of: Callable[[str], CatalogEntry]) -> None:
    one, evil = of(CPU), '<script>alert("1")</script>\'"&'
    pins = [{**pin, "why": evil, "source": f"https://x/{evil}"} for pin in one.facts["pins"]]
    facts = {**one.facts, "pins": pins}
    skipped = [Check(test="test_x", message=evil)]
    suites = {Suite("pins", evil, None, ""): suite_result("pins", passed=1, skipped=skipped)}
    layers = (Layer(None, 10**8, evil),)
    releases = (record(one.image, evil, tag=evil, digest=evil),)
    changed = replace(
        one, facts=facts, absence="", suites=suites, layers=layers, packages={evil: evil}
    )
    changed = replace(changed, releases=releases, moving=(evil,))
    text = page([changed], repository=evil)
    assert text.count("<script") == 1
    assert text.count("</script") == 1
    assert evil in " ".join(_Text(text).words)


def test_the_same_page_twice_and_every_id_once(of: Callable[[str], CatalogEntry]) -> None:
    entries = [of(name) for name in (CPU, BUILT, PUBLISHED)]
    first = page(entries)
    assert page(entries[::-1]) == first
    assert re.findall(r"<h3>.*</span> (.*)</h3>", first) == ["2.2", "2.3"]
    ids = re.findall(r'\sid="([^"]*)"', first)
    assert 0 < len({*ids}) == len(ids)


def test_a_row_has_all_images_of_a_tensorflow(of: Callable[[str], CatalogEntry]) -> None:
    entries = [of(name) for name in (INTEL, CPU, BUILT, PUBLISHED, "tf-2.21-cpu-debian-no-mpi")]
    text = said(entries)
    for row in (
        "TensorFlow 2.2 2.2.3, 2.2.0 Python 3.6.15, 3.6.2 CPU Debian, default GPU Ubuntu, CUDA",
        "Ubuntu, CUDA 10.1 built here published Image",
        "TensorFlow 2.3 2.3.4 Python 3.6.15 CPU Debian Debian, Intel MPI Image",
        "TensorFlow 2.21 2.21.0 Python 3.11.2 CPU Debian, no MPI Image",
    ):
        assert row in text
    assert "Ubuntu updates ended" in text
    assert "\u2013" not in text, "a fact that an image does not have is left out"


def test_an_image_is_tested_when_nothing_failed_is_missing_or_has_changed(
    of: Callable[[str], CatalogEntry],
) -> None:
    passed, failed, skipped, changed, missing = SUITES

    def is_tested(*suites: Suite) -> bool:
        results = {suite: SUITES[suite] for suite in suites}
        return replace(of(BUILT), suites=results, changed=CHANGED & {*suites}).tested

    assert is_tested(passed, skipped)
    for suites in ((passed, failed), (passed, changed), (passed, missing), (skipped,)):
        assert not is_tested(*suites)


def test_changed_suites_are_those_with_another_key() -> None:
    pins, nodes = Suite("pins", "", None, ""), Suite("nodes", "", None, "")
    results = {pins: stored(suite_result("pins", passed=2), "old"), nodes: None}
    assert changed_suites(results, {"pins": "new", "nodes": "new"}) == {pins}
    assert changed_suites(results, {"pins": "old", "nodes": "new"}) == frozenset()


def test_layers_of_a_published_image() -> None:
    registry = MemoryRegistry()
    history = [{"created_by": "A"}, {"empty_layer": True}, {"created_by": "B"}]
    image = registry.add_image("1", [b"one", b"three"], history=history)
    published = replace(RECORD, digest=image.digest)
    assert packed_layers(published, registry) == (Layer(None, 3, "A"), Layer(None, 5, "B"))
    suites = recorded_suites(published, read_suites(ROOT / "tests" / "image"))
    assert [suite.name for suite in suites] == ["gpu_runs", "pins"]
    for damaged in (b"1", b"no JSON", b'{"history": [1]}'):
        registry.blobs[image.config_digest] = damaged
        assert packed_layers(published, registry) == ()


def test_copied_layers_are_named_by_the_stages_that_they_are_from() -> None:
    text = "FROM x AS a\nFROM a AS below\nCOPY --link --from=a /opt/python /opt/python\n"
    chain = Dockerfile(f"{text}FROM below AS final\nCOPY --link --from=b /out/ /\n").chain
    steps = [layer.made_by for layer in name_stages(LAYERS, chain)]
    assert steps[1::2] == ["COPY --from=a /opt/python /opt/python", "COPY --from=b /out/ /"]
    assert name_stages(LAYERS[:3], chain) == LAYERS[:3]


def _write(page: Path, content: bytes) -> None:
    page.parent.mkdir()
    page.write_bytes(content)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda page: page.parent.write_text("x"), "site"),
        (lambda page: page.mkdir(parents=True), "Is a directory"),
        (lambda page: _write(page, b"<p>mine</p>"), "index.html"),
        (lambda page: _write(page, b"\xff"), "UTF-8"),
        (lambda page: page.parent.symlink_to(page.parent), "site"),
    ],
    ids=["file", "folder", "another's", "bytes", "loop"],
)
def test_another_file_is_never_replaced(
    tmp_path: Path, make: Callable[[Path], object], says: str
) -> None:
    make(tmp_path / "site" / "index.html")
    with pytest.raises(InputError, match=says):
        page_file(tmp_path / "site")
