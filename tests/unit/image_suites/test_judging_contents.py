"""What the suite `contents` finds: secrets by name and by text, rights that are given away."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from image_files import (
    File,
    cached,
    foreign_bytecode,
    histories,
    left_over,
    parsed,
    secrets,
)
from image_modes import setuid, world_writable
from image_secrets import KINDS, in_texts

PROGRAMS = Path(__file__).resolve().parents[2] / "image" / "programs"
#: One text of each kind, none of them a secret.
EXAMPLES = {
    "PuTTY key": "PuTTY-User-Key-File-3: ssh-ed25519\n",
    "AWS key": f"AKIA{'A' * 16} aws_secret_access_key = x",
    "GitHub token": f"ghp_{'a' * 36} github_pat_{'a' * 70}",
    "npm token": f"npm_{'a' * 36}",
    "PyPI token": f"pypi-AgEI{'a' * 60}",
    "Slack token": f"xoxb-{'1' * 30}",
    "Google key": f"AIza{'a' * 35}",
    "login in an address": "https://robot:word@mirror.example/simple",
    "netrc": "machine mirror.example\n  login robot\n  password word",
    "registry login": '{"auths": {"x": {"auth": "cm9ib3Q6d29yZA=="}}}',
    "npm login": "//npm.example/:_authToken=word",
}


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a private key that opens nothing."""
    path = tmp_path_factory.mktemp("key") / "id"
    command = ["openssl", "genpkey", "-algorithm", "ed25519", "-out", str(path)]
    subprocess.run(command, check=True, capture_output=True, timeout=30)
    return path.read_text(encoding="ascii")


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the program as a module; here the files lie in /tmp, which it leaves out."""
    monkeypatch.syspath_prepend(str(PROGRAMS))
    module = __import__("matching_files")
    monkeypatch.setattr(module, "FIND", ("-type", "f", "-print0"))
    return module


def _kinds(folder: Path) -> list[dict[str, Any]]:
    return [{**vars(kind), "folders": [str(folder), "/nowhere"]} for kind in KINDS]


def test_each_kind_is_found_by_its_text(program: Any, tmp_path: Path, key: str) -> None:
    for name, text in {**EXAMPLES, "private key": key}.items():
        (tmp_path / name).write_text(text)
    found = program.matching(_kinds(tmp_path))
    assert {kind: {Path(p).name for p in paths} for kind, paths in found.items()} == {
        kind.name: {kind.name} for kind in KINDS
    }


def test_what_only_reads_secrets_holds_none(program: Any, tmp_path: Path) -> None:
    (tmp_path / "ssh").write_bytes(b"\0-----BEGIN OPENSSH PRIVATE KEY-----\n\0-----END\0")
    (tmp_path / "pem.py").write_text('HEAD = "-----BEGIN RSA PRIVATE KEY-----"\nBODY = None\n')
    (tmp_path / "index").write_text("npm_config AIza ghp_ https://host/a:b@c xoxb- auth")
    assert program.matching(_kinds(tmp_path)) == {}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("API_TOKEN=abc", ["API_TOKEN"]),
        ("|1 MIRROR_PASSWORD=abc /bin/sh -c true", ["MIRROR_PASSWORD"]),
        ("RUN aws_secret_access_key=abc ./x", ["AWS key", "aws_secret_access_key"]),
        ("https_proxy=http://proxy.example:3128", ["https_proxy"]),
        ("RUN pip install -i https://me:word@host/simple", ["login in an address"]),
        ("RUN --mount=type=secret,id=netrc,target=/run/secrets/netrc,mode=0444 sh x", []),
        ("API_TOKEN= ./x", []),
        ("OMPI_ALLOW_RUN_AS_ROOT=1", []),
    ],
)
def test_a_configuration_is_reported_by_name_only(text: str, told: list[str]) -> None:
    assert in_texts("history", [text]) == [f"history: {name}" for name in told]


@pytest.mark.parametrize(
    "path",
    [
        "/home/mpiuser/.ssh/id_rsa",
        "/root/.ssh/known_hosts",
        "/home/mpiuser/.docker/config.json",
        "/root/.config/pip/pip.conf",
        "/root/.npmrc",
        "/root/.aws/credentials",
        "/root/.git-credentials",
        "/etc/ssh/authorized_keys",
        "/run/secrets/netrc",
    ],
)
def test_a_secret_is_found_by_name(path: str) -> None:
    assert secrets([File("f", 1, path)]) == [path]


def test_settings_without_secrets_may_stay() -> None:
    paths = ("/root/.ssh/config", "/etc/ssh/sshd_config", "/home/mpiuser/.sshd_config", "/x/netrc")
    assert secrets([File("f", 1, path) for path in paths]) == []


def test_histories_are_found() -> None:
    paths = ["/home/mpiuser/.python_history", "/root/.bash_history", "/root/.viminfo"]
    others = ["/root/.bashrc", "/opt/x_history"]
    assert histories([File("f", 1, path) for path in (*others, *paths)]) == paths
    assert histories([File("f", 0, paths[0])]) == []


def test_pythons_own_wheels_are_no_cache() -> None:
    bundled = "/opt/python/lib/python3.6/ensurepip/_bundled/pip-18.1-py2.py3-none-any.whl"
    other = "/opt/wheels/horovod-0.19.5.whl"
    assert cached([File("f", 1, bundled), File("f", 1, other)]) == [other]


def test_bytecode_of_another_python_is_found() -> None:
    folder = "/opt/python/lib/python3.6/site-packages/x/__pycache__"
    files = [File("f", 1, f"{folder}/a.cpython-{tag}.pyc") for tag in ("36", "36.opt-1", "311")]
    assert foreign_bytecode(files, "3.6.15") == [f"{folder}/a.cpython-311.pyc"]
    assert foreign_bytecode([File("f", 1, "/opt/miniconda/x.cpython-37.pyc")], "3.6.2") == []


def test_what_was_left_in_tmp_is_found() -> None:
    files = parsed("d 1777 40 /tmp\nd 755 40 /tmp/build\nf 644 1 /var/tmp/a b\nf 644 1 /tmpfile\n")
    assert left_over(files) == ["/tmp/build", "/var/tmp/a b"]  # noqa: S108


def test_who_may_write_is_judged_by_mode() -> None:
    files = parsed(
        "d 1777 1 /tmp\nd 777 1 /data\nf 666 1 /opt/python/.lock\nl 777 1 /bin\nf 644 1 /x\n"
    )
    assert world_writable(files) == ["/data (777)", "/opt/python/.lock (666)"]


def test_an_unexpected_setuid_program_is_found() -> None:
    files = parsed(
        "f 4755 1 /usr/bin/su\nf 4755 1 /bin/su\nf 2755 1 /sbin/unix_chkpwd\n"
        "f 4755 1 /usr/bin/git\nf 2755 1 /opt/tool\nd 2775 1 /var/mail\n"
        "f 4755 1 /usr/lib/openssh/ssh-keysign\n"
    )
    assert setuid(files) == ["/opt/tool (2755)", "/usr/bin/git (4755)"]
