"""Documents that no redesign may move: they stay readable, and the same subject makes them again.

The files in ``tests/unit/frozen`` were written once, with made-up names and digests. No command
writes them again. If a form changes on purpose, the old file stays here as an older form that must
be readable, and a file of the new form comes beside it. The images are of the stack ``ubuntu``,
whose pins do not move.

Other tests hold the rest: the input digests of all images, their tags and the help texts are in
``test_golden.py``, the label ``imgbuild.inputs`` and its earlier form in ``plan/test_plan.py``, and
provenances from before releases were signed, as a verification judges them, in
``publish/test_verification.py``.
"""

import json
import platform
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from imgbuild.core.outcome import Outcome
from imgbuild.core.project import Project
from imgbuild.core.settings import Settings, load_settings, local_prefix
from imgbuild.engine.types import StoredImage
from imgbuild.matrix.images import Image
from imgbuild.matrix.tags import record_tag
from imgbuild.net.repository import digest_of
from imgbuild.publish.candidate import PushCandidate
from imgbuild.publish.extended_candidate import Candidate, ExtendedCandidate
from imgbuild.publish.image_push import Push
from imgbuild.publish.provenance import (
    make_extension_provenance,
    make_provenance,
    make_statement,
    read_configuration,
)
from imgbuild.publish.record import ARTIFACT_TYPE, Record, read_record
from imgbuild.publish.signed_image import SignedImage, read_provenances
from imgbuild.suites.catalog import read_suites, select_required, suite_keys
from imgbuild.suites.expectation import expectation
from imgbuild.suites.results import (
    Check,
    Report,
    attested_suites,
    read_results,
    suite_result,
)
from imgbuild.suites.store import ReportStore
from support.memory_registry import MemoryRegistry, configuration_bytes
from support.project_copy import command
from support.published_images import RECORD, publish
from support.registry_server import registry_server
from support.socket_server import SocketServer, socket_server
from support.suite_results import stored

FROZEN = Path(__file__).parent / "frozen"
RELEASE, DAY = "20261120.1", datetime(2026, 11, 20, 10, 11, 12, tzinfo=UTC)
TIME = "2026-11-20T10:11:12Z"
FIRST, SECOND, THIRD, FOURTH, FIFTH, SIXTH = (
    *("tf-1.10-cpu-ubuntu", "tf-1.11-cpu-ubuntu", "tf-1.12-cpu-ubuntu"),
    *("tf-1.13-cpu-ubuntu", "tf-1.14-cpu-ubuntu", "tf-1.15-cpu-ubuntu"),
)
INPUT = "sha256:" + "1" * 64
TAG = f"1.10.0-cpu-py36-ubuntu16.04-intelmpi2018.3.222-{RELEASE}"
#: The results of suites in the frozen images: each kind of outcome.
RESULTS = (
    suite_result("pins", passed=12, seconds=1.5),
    suite_result(
        "tensorflow",
        passed=5,
        failures=(Check(test="test_adds[2]", message="E   assert 1 == 2"),),
        seconds=2.0,
    ),
    suite_result(
        "tensorboard",
        passed=4,
        skipped=(Check(test="test_page", message="no browser"),),
        seconds=3.0,
    ),
    suite_result(
        "horovod",
        passed=3,
        seconds=180.25,
        timed_out=(Check(test="test_ranks[4]", message="ran out of time: waiting for rank 1"),),
    ),
    suite_result(
        "gpu_runs", skipped=(Check(test="test_adds", message="no NVIDIA driver"),), seconds=0.1
    ),
)
VERDICTS = {
    "pins": Outcome.PASSED,
    "tensorflow": Outcome.FAILED,
    "tensorboard": Outcome.INCOMPLETE,
    "horovod": Outcome.TIMED_OUT,
    "gpu_runs": Outcome.SKIPPED,
}
KEYS = {name: f"sha256:{number:064x}" for number, name in enumerate(VERDICTS, 16)}


def _frozen(name: str) -> Any:
    return json.loads((FROZEN / name).read_text(encoding="utf-8"))


def _compare(name: str, document: object) -> None:
    """Compare as programs read it: keys and values, in any order of keys."""
    assert json.loads(json.dumps(document)) == _frozen(name)


# Commands


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SocketServer]:
    """Give an engine without images, to commands that have neither settings nor results."""
    (tmp_path / "settings.yaml").write_text("{}\n")
    with socket_server(tmp_path / "engine.sock") as started:
        started.answers = {
            "/images/json": [],
            "/version": {"ApiVersion": "1.44", "MinAPIVersion": "1.24"},
        }
        for name, value in {
            "DOCKER_HOST": started.host,
            "DOCKER_CONFIG": str(tmp_path),
            "IMGBUILD_SETTINGS": str(tmp_path / "settings.yaml"),
            "XDG_STATE_HOME": str(tmp_path),
            "XDG_CACHE_HOME": str(tmp_path),
        }.items():
            monkeypatch.setenv(name, value)
        yield started


def _json(*words: str) -> Any:
    return json.loads(command(*words, "--json").stdout)


def _put_image(
    engine: SocketServer, image_id: str, name: str, digest: str, *tags: str, **labels: str
) -> None:
    own = {
        "imgbuild.name": name,
        "imgbuild.repository": "imgbuild/tensorflow",
        "imgbuild.input-digest": digest,
        "imgbuild.input.base": "registry",
        "imgbuild.input.cpython": "source",
        **labels,
    }
    entry = {"Id": image_id, "RepoTags": list(tags), "Labels": own, "Created": 1}
    listed = engine.answers["/images/json"]
    assert isinstance(listed, list)
    listed.append(entry)
    engine.answers[f"/v1.44/images/{image_id}/json"] = {
        "Id": image_id,
        "RepoTags": list(tags),
        "Config": {"Labels": own},
        "Created": "2026-11-20T10:11:12Z",
        "RootFS": {"Type": "layers", "Layers": []},
    }


def _put_results(folder: Path, image_id: str, keys: Mapping[str, str]) -> None:
    """Say that this machine built the image, and that it passed these suites."""
    stored = _frozen("stored-report.json")
    passed = stored["suites"]["pins"]
    suites = {suite: {**passed, "suite": suite, "key": key} for suite, key in keys.items()}
    path = folder / "imgbuild" / "reports" / f"{image_id.removeprefix('sha256:')}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**stored, "image_id": image_id, "suites": suites}))


def _keys(image: Image, project: Project) -> dict[str, str]:
    """Return the keys that today's suites have for an image."""
    facts = expectation(image, project, None)
    return dict(suite_keys(select_required(read_suites(project.suites), facts), facts))


def test_list_prints_the_same_json() -> None:
    images = [one for one in _json("list", "--stack", "ubuntu") if not one.pop("as_documented", 0)]
    # A later commit added the platforms.
    assert {tuple(image.pop("platforms")) for image in images} == {("linux/amd64",)}
    _compare("list.json", images)


def test_build_plan_prints_the_same_json(
    engine: SocketServer, tmp_path: Path, images: dict[str, Image], project: Project
) -> None:
    """One image of each action; the digests themselves are in ``test_golden.py``."""
    names = (FIRST, SECOND, THIRD, FOURTH, FIFTH, SIXTH)
    words = ("build", "--dry-run", *names)
    digests = {one["image"]: one["input_digest"] for one in _json(*words)}
    ids = {name: f"sha256:{number:064x}" for number, name in enumerate(names, 1)}
    pins = {one["name"]: one["pins"] for one in _frozen("list.json")}[SECOND]
    labels = {f"imgbuild.pin.{name}": version for name, version in pins.items()}
    old = {**labels, "imgbuild.pin.git": "2.7.3"}
    _put_image(engine, ids[SECOND], SECOND, INPUT, "imgbuild/tensorflow:1.11-cpu-ubuntu", **old)
    for name in (THIRD, FOURTH, FIFTH):
        _put_image(engine, ids[name], name, digests[name])
    _put_image(engine, ids[SIXTH], SIXTH, digests[SIXTH], *images[SIXTH].tags)
    _put_results(tmp_path, ids[SECOND], {})
    _put_results(tmp_path, ids[FOURTH], {})
    for name in (FIFTH, SIXTH):
        _put_results(tmp_path, ids[name], _keys(images[name], project))
    plan = _json(*words)
    assert [one.pop("input_digest") for one in plan] == [digests[name] for name in names]
    _compare("build-plan.json", plan)


def test_push_plan_prints_the_same_json(
    engine: SocketServer, tmp_path: Path, images: dict[str, Image], project: Project
) -> None:
    """One image that the repository lacks, and one of which a later release is there."""
    tags = {one["name"]: one["published"] for one in _frozen("list.json")}
    tag = tags[SECOND]["immutable"].replace("RELEASE", RELEASE)
    words = (FIRST, SECOND)
    plan = _json("build", "--dry-run", *words)
    ids = {FIRST: "sha256:" + "a" * 64, SECOND: digest_of(configuration_bytes(tag))}
    for one in plan:
        image, image_id = images[one["image"]], ids[one["image"]]
        assert image.os.image
        base = {"org.opencontainers.image.base.digest": image.os.image.partition("@")[2]}
        _put_image(engine, image_id, image.name, one["input_digest"], *image.tags, **base)
        _put_results(tmp_path, image_id, _keys(image, project))
    with registry_server() as server:
        moving = tags[SECOND]["moving"]
        publish(server.store, tag, image=SECOND, moving=tuple(moving), published=TIME)
        later = {"release": "20261121.1", "published": "2026-11-21T10:11:12Z"}
        other = tag.replace(RELEASE, "20261121.1")
        publish(server.store, other, image=SECOND, moving=(moving[0],), **later)
        found = _json("push", "--dry-run", *words, "--to", server.name, "--release", RELEASE)
        assert found.pop("repository") == server.name
    _compare("push-plan.json", found)


# Reports


def _report() -> Report:
    return Report(
        FIRST,
        "sha256:" + "a" * 64,
        "sha256:" + "c" * 64,
        RESULTS,
        reference="imgbuild/tensorflow:1.10-cpu-ubuntu",
        not_begun=("nodes",),
        seconds=187.04,
    )


def test_report_is_written_the_same() -> None:
    """``report.json`` of an image, and what ``test --json`` prints."""
    _compare("report.json", _report().as_json())


def test_stored_report_is_written_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, image_id = ReportStore(tmp_path), "sha256:" + "a" * 64
    monkeypatch.setattr("time.gmtime", lambda *_: DAY.timetuple())
    store.import_results(image_id, {}, built=True, seconds=61.5)
    store.save(image_id, KEYS, RESULTS, gpus="")
    _compare("stored-report.json", json.loads(next(tmp_path.iterdir()).read_text()))


def _store(folder: Path, name: str, image_id: str = "sha256:" + "a" * 64) -> ReportStore:
    document = (FROZEN / name).read_text(encoding="utf-8")
    (folder / f"{image_id.removeprefix('sha256:')}.json").write_text(document, encoding="utf-8")
    return ReportStore(folder)


def test_stored_report_is_read(tmp_path: Path) -> None:
    image_id = "sha256:" + "a" * 64
    store = _store(tmp_path, "stored-report.json")
    assert store.was_built_here(image_id)
    assert store.work_seconds(image_id) == 61.5
    found = store.passed(image_id, KEYS)
    passed = {result.suite: result for result in RESULTS if result.suite in {"pins", "gpu_runs"}}
    assert found == {
        name: stored(result, KEYS[name], before=TIME, gpus="") for name, result in passed.items()
    }
    assert {name: result.verdict for name, result in found.items()} == {
        name: VERDICTS[name] for name in passed
    }
    assert store.passed(image_id, KEYS, gpus="another GPU").keys() == {"pins"}
    assert store.verdict(image_id, KEYS) is Outcome.FAILED
    assert store.verdict(image_id, {"pins": KEYS["pins"]}) is Outcome.PASSED
    for suite in ("tensorboard", "horovod"):
        assert store.verdict(image_id, {suite: KEYS[suite]}) is Outcome.UNKNOWN
    assert store.results(image_id)["horovod"].timed_out == RESULTS[3].timed_out


def test_stored_report_of_a_pulled_image_is_read(tmp_path: Path) -> None:
    """Without the keys that were added later, and with a result of a repository."""
    image_id = "sha256:" + "b" * 64
    store = _store(tmp_path, "stored-report-before.json", image_id)
    assert store.is_own(image_id)
    assert not store.was_built_here(image_id)
    assert store.verified_by(image_id) == store.signed_by(image_id) == "f" * 64
    assert store.work_seconds(image_id) == 0
    keys = {name: KEYS[name] for name in ("pins", "tensorflow")}
    found = store.passed(image_id, keys)
    assert found.keys() == keys.keys()
    assert found["pins"].found == "registry.example.org/ml/tensorflow"
    assert found["tensorflow"].found is None
    assert (found["tensorflow"].passed, found["tensorflow"].before) == (6, TIME)
    assert store.verdict(image_id, keys) is Outcome.PASSED


# Records


#: The report of an image that may be published.
PUBLISHED = {
    "pins": stored(RESULTS[0], KEYS["pins"], before=TIME),
    "gpu_runs": stored(RESULTS[4], KEYS["gpu_runs"], before=TIME),
}
LABELS = {
    "imgbuild.snapshot.ubuntu": "20261101T000000Z",
    "imgbuild.inputs": '{"form":2,"parts":{"uv":"0.13.8"}}',
    "org.opencontainers.image.revision": "c" * 40,
    "org.opencontainers.image.source": "https://example.org/ml/imgbuild",
    "org.opencontainers.image.base.name": "ubuntu:16.04",
    "org.opencontainers.image.base.digest": "sha256:" + "b" * 64,
}
EXTENDED_LABELS = {
    "imgbuild.name": FIRST,
    "imgbuild.extends": FIRST,
    "imgbuild.input-digest": INPUT,
    "imgbuild.pin.tensorflow": "1.10.0",
    "imgbuild.added.pip": "keras==2.2.4",
    "imgbuild.added.lock": "sha256:" + "d" * 64,
    "org.opencontainers.image.base.name": "registry.example.org/ml/tensorflow:1.10-cpu-ubuntu",
    "org.opencontainers.image.base.digest": "sha256:" + "b" * 64,
}
SBOM = {
    "components": [
        {"type": "library", "name": "git", "version": "1:2.7.4", "purl": "pkg:deb/ubuntu/git"},
    ]
}


@pytest.fixture
def candidate(images: dict[str, Image]) -> PushCandidate:
    epoch = {"epoch": "2026-11-01T00:00:00Z"}
    image = replace(images[FIRST], matrix=images[FIRST].matrix.model_copy(update=epoch))
    stored = StoredImage(digest_of(configuration_bytes("content")), labels=LABELS)
    return PushCandidate(
        image,
        stored,
        INPUT,
        PUBLISHED,
        ("suite gpu_runs skipped: no NVIDIA driver",),
        {"numpy": "1.14.5", "tensorflow": "1.10.0"},
        work_seconds=61.5,
    )


@pytest.fixture
def extended(images: dict[str, Image]) -> ExtendedCandidate:
    stored = StoredImage(digest_of(configuration_bytes("content")), labels=EXTENDED_LABELS)
    packages = {"keras": "2.2.4", "tensorflow": "1.10.0"}
    return ExtendedCandidate(
        "me/train:1", stored, images[FIRST], PUBLISHED, ("horovod",), packages=packages
    )


def _published(candidate: Candidate, tag: str) -> dict[str, Any]:
    """Push an image; return the document of its record, of a registry in memory."""
    registry = MemoryRegistry("registry.example.org/ml/tensorflow")

    def upload(name: str) -> str:
        registry.tagged[name] = registry.add_image("content").digest
        return registry.tagged[name]

    sbom = json.dumps(SBOM).encode()
    push = Push(registry, (), RELEASE, now=lambda: DAY)
    push.push(candidate, upload, lambda *_: {"cyclonedx": sbom, "slsaprovenance1": b"{}"})
    artifact = registry.read_artifact(record_tag(tag), ARTIFACT_TYPE)
    assert artifact
    return dict(artifact[0])


def _read(document: Mapping[str, Any]) -> Record:
    """Return what is read of a record that lies beside its image."""
    registry = MemoryRegistry()
    image = registry.add_image("content")
    changed = {**document, "digest": image.digest}
    tag = record_tag(document["tag"])
    registry.put_artifact(tag, ARTIFACT_TYPE, json.dumps(changed).encode(), image)
    record = read_record(registry, document["tag"])
    assert record
    return replace(record, digest=document["digest"])


def test_record_is_written_the_same(candidate: PushCandidate) -> None:
    _compare("record.json", _published(candidate, TAG))


def test_extension_record_is_written_the_same(extended: ExtendedCandidate) -> None:
    _compare("record-extended.json", _published(extended, f"1-{RELEASE}"))


def test_record_is_read() -> None:
    document = _frozen("record.json")
    record = _read(document)
    facts = {
        "image": FIRST,
        "digest": document["digest"],
        "image_id": digest_of(configuration_bytes("content")),
        "release": RELEASE,
        "tag": TAG,
        "moving": ("1.10-cpu-ubuntu", "1.10.0-cpu-ubuntu"),
        "input_digest": INPUT,
        "variant": "cpu",
        "stack": "ubuntu",
        "report": PUBLISHED,
        "substitutes": ("suite gpu_runs skipped: no NVIDIA driver",),
        "published": TIME,
        "packages": {"numpy": "1.14.5", "tensorflow": "1.10.0"},
        "snapshots": {"ubuntu": "20261101T000000Z"},
        "system": {"git": "1:2.7.4"},
        "build_seconds": 61.5,
        "retired": "",
        "base": "",
        "lock": "",
    }
    assert {name: getattr(record, name) for name in facts} == facts
    assert record.pins["tensorflow"] == "1.10.0"
    assert record.size > 0


def test_retired_extension_record_is_read() -> None:
    retired = {"retired": "2026-11-27", "retired_reason": "CVE-2026-1"}
    record = _read({**_frozen("record-extended.json"), **retired})
    assert (record.retired, record.retired_reason) == ("2026-11-27", "CVE-2026-1")
    assert (record.image, record.tag, record.moving) == ("train:1", f"1-{RELEASE}", ("1",))
    base = EXTENDED_LABELS["org.opencontainers.image.base.name"]
    assert record.base == f"{base}@{EXTENDED_LABELS['org.opencontainers.image.base.digest']}"
    assert record.lock == EXTENDED_LABELS["imgbuild.added.lock"]
    assert record.not_run == ("horovod",)
    assert record.pins == {"tensorflow": "1.10.0"}
    assert record.report == PUBLISHED


def test_record_without_later_keys_is_read() -> None:
    """The first records had no packages, system, times, retirement, base or lock."""
    document = _frozen("record-before.json")
    record = _read(document)
    assert record.report == {"pins": PUBLISHED["pins"]}
    assert (record.packages, record.snapshots, record.system) == ({}, {}, {})
    assert (record.build_seconds, record.retired, record.base, record.lock) == (0, "", "", "")
    assert (record.tag, record.published) == (document["tag"], TIME)


# Provenance


def _provenance_parts(candidate: Candidate) -> tuple[Record, Mapping[str, Any]]:
    """Return what a provenance reads of the record, and the configuration of the image."""
    registry = MemoryRegistry()
    image = registry.add_image("content", config={"Env": ["A=1"], "User": "me"}, created=TIME)
    tags = candidate.tags(RELEASE)
    record = replace(RECORD, release=RELEASE, tag=tags.immutable, moving=tags.moving)
    return record, read_configuration(registry, image)


def _signed(predicate: Mapping[str, Any]) -> dict[str, Any]:
    """Return the statement that is signed, without digests of files of the checkout.

    ``publish/test_provenance.py`` compares these with the files.
    """
    document = make_statement("registry.example.org/ml/tensorflow", "sha256:" + "e" * 64, predicate)
    made: dict[str, Any] = json.loads(json.dumps(document))
    inputs = made["predicate"]["buildDefinition"]["resolvedDependencies"]
    for entry in (*inputs, *made["predicate"]["runDetails"]["byproducts"]):
        if entry.get("name", "").startswith(("images/", "suite ")):
            assert entry["digest"].keys() == {"sha256"}
            entry["digest"] = {"sha256": "0" * 64}
    return made


def test_provenance_is_written_the_same(candidate: PushCandidate, project: Project) -> None:
    record, configuration = _provenance_parts(candidate)
    made = make_provenance(
        candidate,
        record,
        configuration,
        project,
        Settings(),
        sbom=json.dumps(SBOM),
        wheel="the key",
    )
    _compare("statement.json", _signed(made))


def test_extension_provenance_is_written_the_same(
    extended: ExtendedCandidate, project: Project
) -> None:
    made = make_extension_provenance(
        extended, *_provenance_parts(extended), project, json.dumps(SBOM)
    )
    _compare("statement-extended.json", _signed(made))


def test_provenance_is_read() -> None:
    predicate = _frozen("statement.json")["predicate"]
    (signed,) = read_provenances([predicate])
    assert signed == SignedImage(
        image=FIRST,
        variant="cpu",
        pins=predicate["buildDefinition"]["externalParameters"]["pins"],
        input_digest=INPUT,
        verdicts={"pins": "passed", "gpu_runs": "skipped"},
        release=RELEASE,
        tag=TAG,
        moving=("1.10-cpu-ubuntu", "1.10.0-cpu-ubuntu"),
        configuration=signed.configuration,
    )
    assert signed.configuration
    assert signed.configuration["config"] == {"Env": ["A=1"], "User": "me"}
    assert signed.pins["tensorflow"] == "1.10.0"


def test_attested_results_count(tmp_path: Path) -> None:
    """Those of a signed provenance are good on another machine, as `build --pull` takes them."""
    suites = attested_suites([_frozen("statement.json")["predicate"]])
    store, image_id = ReportStore(tmp_path), "sha256:" + "a" * 64
    found = "registry.example.org/ml/tensorflow"
    store.import_results(image_id, read_results(suites), found, signed_by="me")
    keys = {name: KEYS[name] for name in ("pins", "gpu_runs")}
    assert store.verdict(image_id, keys) is Outcome.PASSED
    assert store.passed(image_id, keys)["pins"].passed == 12


def test_extension_provenance_is_read() -> None:
    (signed,) = read_provenances([_frozen("statement-extended.json")["predicate"]])
    record = _read(_frozen("record-extended.json"))
    assert (signed.base, signed.lock, signed.not_run) == (record.base, record.lock, record.not_run)
    assert (signed.image, signed.tag, signed.moving) == ("train:1", f"1-{RELEASE}", ("1",))
    assert signed.input_digest == record.input_digest


def test_provenance_without_release_is_read(images: dict[str, Image]) -> None:
    """It was signed before releases, tags and configurations were."""
    (signed,) = read_provenances([_frozen("provenance-before.json")])
    assert (signed.image, signed.input_digest) == (FIRST, INPUT)
    assert (signed.release, signed.tag, signed.moving, signed.configuration) == (None,) * 4
    assert signed.verdicts == {"pins": "passed"}
    tags = signed.tags(images[FIRST].matrix)
    assert tags.moving == ("1.10-cpu-ubuntu", "1.10.0-cpu-ubuntu")


# Settings


def test_settings_are_read() -> None:
    """Every key, and each short form: a mirror as its URL, a builder as its name."""
    found = load_settings(FROZEN / "settings.yaml")
    engine, publishing, verify = found.engine, found.publishing, found.verify
    assert (engine.host, engine.buildx) == ("unix:///run/example/docker.sock", "/opt/buildx")
    assert (engine.step_timeout, engine.builders) == (1800, ("farm",))
    bases = {name: found.base_for(name) for name in ("debian-12", "debian-13", "ubuntu-18.04")}
    assert {name: base.source for name, base in bases.items()} == {
        "debian-12": "bootstrap",
        "debian-13": "layout",
        "ubuntu-18.04": "registry",
    }
    assert bases["debian-13"].path == "/srv/bases/debian-13"
    assert bases["ubuntu-18.04"].image == f"registry.example.org/ubuntu@sha256:{'b' * 64}"
    here = platform.machine()
    interpreters = {
        version: found.interpreter_for(version, here) for version in ("3.6.15", "3.8.20")
    }
    assert interpreters["3.6.15"] == local_prefix(Path("/opt/python-3.6"))
    assert interpreters["3.8.20"].source == "source"
    assert (found.ca_bundle, found.netrc) == ("/etc/ssl/example.pem", "/srv/netrc")
    mirrors = found.mirrors
    assert mirrors["python-index"].url == "https://mirror.example.org/simple/"
    assert mirrors["debian"].snapshot == "20261101T000000Z"
    assert mirrors["nvidia-cuda"].keyring == "/srv/keys/cuda.gpg"
    assert found.registry == "registry.example.org/hub"
    assert found.substitutes == {"openmpi-3.1.2.tar.gz": "e" * 64}
    assert found.standin
    assert (found.standin.note, found.standin.versions) == ("for tests", {"python": "3.6.9"})
    assert publishing.repository == "registry.example.org/ml/tensorflow"
    assert (publishing.attempts, publishing.first_wait) == (7, 0.5)
    assert (verify.key, verify.identity) == (None, "https://ci.example.org/build")
    assert verify.issuer == "https://issuer.example.org"
