"""Images that are signed as they are pushed, by two versions of cosign, on a real registry."""

import json
import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from imgbuild.net.repository import descriptor
from imgbuild.net.repository_client import RegistryClient
from support.debian_program import debian_program, with_program
from support.network_namespace import forwarded
from support.own_dockerd import OwnDockerd, own_dockerd
from support.own_registry import OwnRegistry, own_registry
from support.publishing_project import (
    IMMUTABLE,
    MOVING,
    ONE,
    TWO,
    PublishingProject,
    publishing_project,
)
from support.referrers_registry import referrers_registry
from support.sigstore_services import IDENTITY, ISSUER, TOKEN, Sigstore, sigstore

#: Debian's suites with version 2 and version 3 of cosign.
SUITES = ("trixie", "sid")
PASSWORD = "the-password-of-a-key"  # noqa: S105
TYPES = ("cyclonedx", "slsaprovenance1")
#: What does not depend on cosign's version is tried with the older one by `make nightly` alone.
NEWER_ALWAYS = pytest.mark.parametrize(
    "project", [pytest.param(SUITES[0], marks=pytest.mark.nightly), SUITES[1]], indirect=True
)


@pytest.fixture(
    scope="module",
    params=[own_registry, pytest.param(referrers_registry, marks=pytest.mark.nightly)],
    ids=["tags", "referrers"],
)
def registry(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OwnRegistry]:
    """Give a registry without the Referrers API, and one that has it."""
    with request.param(tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with two keys: own.key, own.pub, other.key, other.pub."""
    folder = tmp_path_factory.mktemp("keys")
    program = debian_program("cosign", SUITES[0]) / "cosign"
    for name in ("own", "other"):
        words = [str(program), "generate-key-pair", f"--output-key-prefix={name}"]
        environment = {**os.environ, "COSIGN_PASSWORD": PASSWORD}
        subprocess.run(words, cwd=folder, env=environment, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def built(
    registry: OwnRegistry, dockerd: OwnDockerd, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PublishingProject]:
    folder = tmp_path_factory.mktemp("signing")
    made = publishing_project(folder, dockerd.host)
    netrc = folder / "netrc"
    netrc.write_text(f"machine mirror.invalid login me password {PASSWORD}\n", encoding="ascii")
    made.set_up(netrc=str(netrc), publishing={"attempts": 3, "first_wait": 0.1})
    made.run("build", *TWO)
    with forwarded(registry.port, dockerd.pid):
        yield made


@pytest.fixture(params=SUITES)
def project(
    built: PublishingProject, tmp_path: Path, request: pytest.FixtureRequest
) -> PublishingProject:
    copy = built.copied(tmp_path, f"ml/{uuid.uuid4().hex}")
    return with_cosign(copy, debian_program("cosign", request.param))


def with_cosign(project: PublishingProject, programs: Path) -> PublishingProject:
    """Return the project of one who has the cosign of a folder, and the password of the keys."""
    own = {"COSIGN_PASSWORD": PASSWORD, "PATH": os.environ["PATH"]}
    return replace(project, variables=with_program(own, programs))


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Sigstore]:
    (tmp_path / "sigstore").mkdir()
    with sigstore(tmp_path / "sigstore") as running:
        yield running


@pytest.fixture
def client(project: PublishingProject, registry: OwnRegistry) -> Iterator[RegistryClient]:
    with project.client(registry.host) as opened:
        yield opened


def _checks(project: PublishingProject, reference: str, key: Path, code: int = 0) -> dict[str, str]:
    """Return the problem of each check of `imgbuild verify`; nothing where it holds."""
    found = project.json("verify", reference, "--key", str(key), code=code)
    return {one["name"]: one["problem"] for one in found}


def _tag(client: RegistryClient, minor: str) -> str:
    (tag,) = {one for one in client.tags() if one.startswith(f"{IMMUTABLE[minor]}-")} - {
        one for one in client.tags() if one.endswith(".record")
    }
    return tag


def _discovered(project: PublishingProject, reference: str) -> int:
    """Return how many documents oras finds of an image."""
    oras = str(debian_program("oras", "sid") / "oras")
    listed = project.typed([oras, "discover", "--plain-http", "--format=json", reference]).stdout
    return len(json.loads(listed)["referrers"])


@NEWER_ALWAYS
def test_push_signs_no_image_of_somebody_else(
    project: PublishingProject, registry: OwnRegistry, client: RegistryClient, keys: Path
) -> None:
    """Who may write, but has no key, puts manifests under the tag that name our image as well."""
    sign = ("--sign-key", str(keys / "own.key"))
    project.push(registry.host)
    tag = _tag(client, "1.10")
    true = client.manifest(tag)
    assert true
    config = json.loads(client.blob(true.config_digest))
    config["config"]["Entrypoint"] = ["/bytes"]
    document, layer = dict(true.document()), b"somebody's files"
    foreign = {}
    for name, content in (("config", json.dumps(config).encode()), ("layer", layer)):
        kind = document["config"]["mediaType"] if name == "config" else "text/plain"
        foreign[name] = descriptor(kind, content)
        client.put_blob(content)
    layers = [*document["layers"], foreign["layer"]]
    cosign = str(debian_program("cosign", SUITES[1]) / "cosign")
    trust = (f"--key={keys / 'own.pub'}", "--insecure-ignore-tlog=true")
    for changes in (
        {"Config": foreign["config"], "Layers": layers},
        {"layers": layers},
        {"annotations": {"somebody": "else"}},
    ):
        content = json.dumps({**document, **changes}).encode()
        digest = client.put_manifest(tag, content, true.media_type)
        moved = client.heads([one for one in client.tags() if one in MOVING["1.10"]])
        failed = project.push(registry.host, *sign, code=1)
        assert tag in failed.stderr or digest in failed.stderr
        verified = [cosign, "verify", *trust, f"{client.name}@{digest}"]
        assert project.typed(verified, code=None).returncode
        assert client.heads([*moved]) == moved
    client.put_manifest(tag, true.content, true.media_type)
    project.push(registry.host, *sign)
    project.typed([cosign, "verify", *trust, f"{client.name}@{true.digest}"])


def test_what_is_pushed_is_signed_and_every_cosign_verifies_it(
    project: PublishingProject, registry: OwnRegistry, client: RegistryClient, keys: Path
) -> None:
    own, other = keys / "own.pub", keys / "other.pub"
    sign = ("--sign-key", str(keys / "own.key"))
    found = json.loads(project.push(registry.host, *sign, "--json", selection=TWO).stdout)
    assert [one["done"][:2] for one in found["published"]] == [["pushed", "signed"]] * 2
    again = json.loads(project.push(registry.host, *sign, "--json", selection=TWO).stdout)
    assert [one["done"] for one in again["published"]] == [[], []]
    reference = f"{client.name}:{_tag(client, '1.10')}"
    assert {*_checks(project, reference, own).values()} == {""}
    problems = _checks(project, reference, other, code=1)
    assert all(problems[name] for name in ("signature", "SBOM", "provenance"))
    # With nothing of imgbuild: both versions, whichever signed; predicates are what they should be.
    digest = client.head(_tag(client, "1.10"))
    for suite in SUITES:
        cosign = str(debian_program("cosign", suite) / "cosign")
        exact = f"{client.name}@{digest}"
        trust = (f"--key={own}", "--insecure-ignore-tlog=true")
        project.typed([cosign, "verify", *trust, exact])
        for kind in TYPES:
            project.typed([cosign, "verify-attestation", *trust, f"--type={kind}", exact])
        assert project.typed(
            [cosign, "verify", f"--key={other}", trust[1], exact], code=None
        ).returncode
    assert _discovered(project, f"{client.name}@{digest}") >= len(TYPES)
    # A retirement is signed, and counts whatever the record says.
    words = ("release", "retire", _tag(client, "1.10"), "--from", client.name, "--reason", "a hole")
    assert "--sign-key" in project.run(*words, code=2).stderr
    recorded = client.head(f"{_tag(client, '1.10')}.record")
    project.run(*words, *sign)
    for record in (None, client.manifest(str(recorded))):
        if record:
            client.put_manifest(f"{_tag(client, '1.10')}.record", record.content, record.media_type)
        problems = _checks(project, reference, own, code=1)
        assert {name for name, problem in problems.items() if problem} == {"retirement"}
        assert "a hole" in problems["retirement"]
    assert PASSWORD not in project.log()


@pytest.mark.parametrize(
    ("project", "version"),
    [pytest.param(SUITES[0], 2, marks=pytest.mark.nightly), (SUITES[1], 3)],
    indirect=["project"],
)
def test_who_has_no_key_signs_as_who_they_are(
    project: PublishingProject,
    version: int,
    registry: OwnRegistry,
    client: RegistryClient,
    services: Sigstore,
) -> None:
    """Certificates and the public log are stand-ins; both versions of cosign verify who signed."""
    own = {**project.variables, **services.variables(version)}
    somebody = replace(project, variables=own)
    push = ("--sign-keyless", "--json")
    for done in (["pushed", "signed"], []):
        found = json.loads(somebody.push(registry.host, *push, selection=ONE).stdout)
        assert [one["done"][:2] for one in found["published"]] == [done]
    reference = f"{client.name}:{_tag(client, '1.10')}"
    verify = ("verify", reference, "--issuer", ISSUER, "--identity")
    assert {one["problem"] for one in somebody.json(*verify, IDENTITY)} == {""}
    problems = {one["name"]: one["problem"] for one in somebody.json(*verify, "me@x.org", code=1)}
    assert all("somebody else" in problems[name] for name in ("signature", "SBOM", "provenance"))
    exact = f"{client.name}@{client.head(_tag(client, '1.10'))}"
    trust = (f"--certificate-identity={IDENTITY}", f"--certificate-oidc-issuer={ISSUER}", exact)
    for suite, major in zip(SUITES, (2, 3), strict=True):
        anybody = replace(project, variables={**project.variables, **services.variables(major)})
        cosign = str(debian_program("cosign", suite) / "cosign")
        anybody.typed([cosign, "verify", *trust])
        for kind in TYPES:
            anybody.typed([cosign, "verify-attestation", f"--type={kind}", *trust])
    assert _discovered(project, exact) >= len(TYPES)
    assert TOKEN not in project.log()


@NEWER_ALWAYS
def test_a_tag_of_another_image_a_changed_layer_and_an_unsigned_image_are_refused(
    project: PublishingProject, registry: OwnRegistry, client: RegistryClient, keys: Path
) -> None:
    own = keys / "own.pub"
    assert "--sign-key" in project.push(registry.host, selection=ONE).stderr
    tag = _tag(client, "1.10")
    stem = str(client.head(tag)).replace(":", "-")
    assert {f"{stem}.sbom", f"{stem}.provenance"} <= {*client.tags()}
    for end in ("sbom", "provenance"):
        manifest = client.manifest(f"{stem}.{end}")
        assert manifest
        (layer,) = json.loads(manifest.content)["layers"]
        said = client.blob(layer["digest"])
        assert b"1.10" in said
        assert PASSWORD.encode() not in said
    assert _discovered(project, f"{client.name}:{tag}") >= len(TYPES)
    assert _checks(project, f"{client.name}:{tag}", own, code=1)["signature"]
    sign = ("--sign-key", str(keys / "own.key"))
    project.push(registry.host, *sign, selection=TWO)  # completes what was not signed
    assert {*_checks(project, f"{client.name}:{tag}", own).values()} == {""}
    # Somebody who may write moves a tag to another image, which is signed as well.
    other = client.manifest(_tag(client, "1.11"))
    assert other
    client.put_manifest("1.10-cpu", other.content, other.media_type)
    found = _checks(project, f"{client.name}:1.10-cpu", own, code=1)
    assert found["tag"]
    assert not found["signature"]
    # And puts an image of their own there, with the attestations of the right one.
    document: dict[str, Any] = json.loads(other.content)
    document["layers"] = document["layers"][:-1]
    forged = client.put_manifest("1.10-cpu", json.dumps(document).encode(), other.media_type)
    for end in (".sig", ".att"):
        copied = client.manifest(f"{other.digest.replace(':', '-')}{end}")
        assert copied
        client.put_manifest(f"{forged.replace(':', '-')}{end}", copied.content, copied.media_type)
    found = _checks(project, f"{client.name}:1.10-cpu", own, code=1)
    assert all(found[name] for name in ("signature", "SBOM", "provenance", "tag", "record"))


#: Runs cosign, but kills who called it before the call of this number that writes.
KILLING = """\
#!/bin/sh
case $1 in attest|sign) case $* in *--help*) ;; *)
    echo >> {calls}
    [ "$(wc -l < {calls})" != {number} ] || kill -KILL $PPID
esac; esac
exec {cosign} "$@"
"""


@pytest.mark.nightly
@NEWER_ALWAYS
def test_a_push_that_is_killed_between_calls_of_cosign_is_completed(
    project: PublishingProject, registry: OwnRegistry, keys: Path, tmp_path: Path
) -> None:
    """Before each of its attestations and signatures; until then nothing says it is signed."""
    sign = ("--sign-key", str(keys / "own.key"))
    cosign = shutil.which("cosign", path=project.environment["PATH"])
    for number in count(1):
        folder, calls = tmp_path / str(number), tmp_path / f"calls-{number}"
        copy = project.copied(folder, f"ml/{uuid.uuid4().hex}")
        program = folder / "bin" / "cosign"
        program.parent.mkdir()
        program.write_text(KILLING.format(calls=calls, number=number, cosign=cosign))
        program.chmod(0o755)
        killed = replace(project, root=copy.root, state=copy.state, repository=copy.repository)
        cut = with_cosign(killed, program.parent)
        if not cut.push(registry.host, *sign, code=None).returncode:
            break
        with killed.client(registry.host) as there:
            assert not {*MOVING["1.10"]} & {*there.tags()}
            killed.push(registry.host, *sign)
            reference = f"{there.name}:{_tag(there, '1.10')}"
            assert {*_checks(killed, reference, keys / "own.pub").values()} == {""}
    assert number >= len(TYPES) * 2 + 2, "each attestation in two forms, and a signature"


@NEWER_ALWAYS
def test_what_is_not_verified_is_neither_pulled_nor_extended(
    project: PublishingProject,
    registry: OwnRegistry,
    client: RegistryClient,
    keys: Path,
    tmp_path: Path,
) -> None:
    project.push(registry.host, selection=ONE)
    with own_dockerd() as engine, forwarded(registry.port, engine.pid):
        copy = project.copied(tmp_path / "other", project.repository)
        other = replace(copy, state=tmp_path / "state", host=engine.host)
        other.set_up(engine={"host": engine.host}, verify={"key": str(keys / "own.pub")})
        source = ("--pull", "--from", f"{registry.host}/{project.repository}")
        assert "is not verified" in other.run("build", *ONE, *source, "--no-test").stderr
        assert other.plan("1.10")["action"] != "build", "it was built here"
        reference = f"{client.name}:{_tag(client, '1.10')}"
        words = ("extend", reference, "--env", "A=1", "-t", "me/x:1", "--no-test")
        # The very image was built by `other`; whoever has no record of that needs a signature.
        fresh = replace(other, state=tmp_path / "fresh")  # which has built nothing
        assert "no signature" in fresh.run(*words, code=1).stderr
        assert other.docker("image", "inspect", "me/x:1").returncode
        # Signed afterwards, it is taken: the very image, not one that is built there.
        project.push(registry.host, "--sign-key", str(keys / "own.key"), selection=ONE)
        fresh.run(*words)
        # So do its results: nothing is tested again, and it may be published under another name.
        other.docker("rmi", "--force", *{*other.printed("images", "--quiet").split()})
        (taken,) = fresh.json("build", *ONE, *source)
        assert (taken["state"], taken["report"]) == ("done", None)
        mirrored = replace(fresh, repository=f"{project.repository}-mirror")
        mirrored.push(registry.host, selection=ONE)
        # Somebody else's signature would not do, nor would none.
        other.set_up(engine={"host": engine.host}, verify={"key": str(keys / "other.pub")})
        refused = mirrored.push(f"{registry.host}/second", selection=ONE, code=1)
        assert "no record that this machine built it" in refused.stderr
