"""``imgbuild verify``: one digest for all checks."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import imgbuild.maintain.reproduction
import imgbuild.suites.container
from imgbuild.core.errors import CheckFailedError, InputError
from imgbuild.publish import verification
from imgbuild.publish.verification import VerifiedFact
from support.project_copy import command

EXACT = f"registry.test/ml/tf@sha256:{'1' * 64}"
#: A comparison without layers.
NOTHING: dict[str, Any] = {"image": "x", "layers": (), "packages": {}, "configuration": {}}
TAGGED = "registry.test/ml/tf:2.2-cpu"


@pytest.fixture
def key(tmp_path: Path) -> str:
    path = tmp_path / "cosign.pub"
    path.write_text("a key", encoding="ascii")
    return str(path)


@pytest.fixture
def rebuilt(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what is rebuilt; each rebuild differs after the first."""
    names: list[str] = []

    def reproduce(_: object, name: str, __: object, **___: object) -> Any:
        names.append(name)
        same = len(names) == 1
        return SimpleNamespace(**NOTHING, same=same, reference=name)

    monkeypatch.setattr(imgbuild.maintain.reproduction, "reproduce", reproduce)
    monkeypatch.setattr(imgbuild.suites.container, "require_docker_client", lambda: None)
    return names


def verified(*problems: str) -> tuple[str, list[VerifiedFact]]:
    return EXACT, [VerifiedFact("signature", problem) for problem in problems]


def test_rebuild_builds_the_verified_digest(
    key: str, rebuilt: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine may have another image under the tag; the registry may move it meanwhile."""
    monkeypatch.setattr(verification, "verify_image", lambda *_: verified(""))
    command("verify", TAGGED, "--key", key, "--rebuild")
    assert rebuilt == [EXACT]
    with pytest.raises(CheckFailedError, match="rebuild"):
        command("verify", TAGGED, "--key", key, "--rebuild")


def test_unverified_image_is_not_rebuilt(
    key: str, rebuilt: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    problems = verified("", "somebody else signed it")
    monkeypatch.setattr(verification, "verify_image", lambda *_: problems)
    with pytest.raises(CheckFailedError, match="signature"):
        command("verify", TAGGED, "--key", key, "--rebuild")
    assert rebuilt == []


@pytest.mark.parametrize(
    "options",
    [
        ("--key", "/nonexistent/cosign.pub"),
        ("--identity", "me@example.org"),
        ("--issuer", "https://issuer.example"),
        ("--key", "awskms:///alias/x", "--issuer", "https://issuer.example"),
    ],
)
def test_incomplete_trust_is_refused(options: tuple[str, ...]) -> None:
    with pytest.raises(InputError):
        command("verify", TAGGED, *options)
