"""What the suites find in an image by names, texts and versions; broken images prove the rest."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from image_files import (
    File,
    compilers,
    foreign_bytecode,
    parsed,
    secrets,
    toolkit,
)
from image_secrets import KINDS, in_files, in_texts
from pickling import fault_of_model, fault_of_module
from tensorboard_content import wrong_buckets
from test_gpu_loadable import ALWAYS_OPENED, contradictions, refused

SITE = "/opt/python/lib/python3.6/site-packages"
NVIDIA = "/opt/python/lib/python3.11/site-packages/nvidia"
bytecode = partial(foreign_bytecode, python="3.6.15")
SOUND = parsed(
    "f 644 9 /usr/local/cuda-10.1/targets/x86_64-linux/lib/libcudart.so.10.1.243\n"
    "l 644 9 /usr/lib/x86_64-linux-gnu/libcudnn.so.7\n"
    "f 644 9 /usr/local/cuda-10.1/extras/CUPTI/include/cuda_stdint.h\n"
    f"f 644 9 {SITE}/tensorflow/include/cuda.h\n"
    f"f 644 9 {NVIDIA}/cuda_nvcc/bin/ptxas\n"  # XLA runs it
    f"f 644 9 {NVIDIA}/cuda_nvcc/nvvm/libdevice/libdevice.10.bc\n"
    "f 644 9 /opt/python/lib/python3.6/distutils/ccompiler.py\n"
    f"f 644 9 {SITE}/x/__pycache__/a.cpython-36.opt-1.pyc\n"
    "f 644 9 /opt/miniconda/x.cpython-37.pyc\n"
    "f 644 9 /usr/bin/mpicc.openmpi.txt\n"
    "f 644 9 /root/.ssh/config\n"
    "f 644 9 /etc/ssh/sshd_config\n"
    "f 644 9 /x/netrc\n"
    "d 644 9 /usr/local/cuda/bin/nvcc\n"
)

#: What must not be in an image: by each judge, names that it finds.
WRONG: dict[Callable[[list[File]], list[str]], tuple[str, ...]] = {
    secrets: (
        *("/root/.netrc", "/etc/apt/auth.conf.d/mirror.conf", "/etc/ssh/ssh_host_rsa_key"),
        *("/home/mpiuser/.ssh/id_rsa", "/root/.ssh/known_hosts", "/etc/ssh/authorized_keys"),
        *("/home/mpiuser/.docker/config.json", "/root/.config/pip/pip.conf", "/root/.npmrc"),
        *("/root/.aws/credentials", "/root/.git-credentials", "/run/secrets/netrc"),
    ),
    compilers: (
        *("/usr/bin/g++-4.8", "/usr/bin/x86_64-linux-gnu-gcc-5", "/usr/bin/cc", "/usr/bin/make"),
        *("/usr/lib/gcc/x86_64-linux-gnu/5/cc1plus", "/usr/local/cuda-10.1/bin/nvcc"),
        "/opt/miniconda/bin/x86_64-conda_cos6-linux-gnu-cc",
    ),
    bytecode: (f"{SITE}/x/__pycache__/a.cpython-311.pyc",),
    toolkit: (
        *("/usr/include/nccl.h", "/usr/lib/x86_64-linux-gnu/libcudnn_static_v7.a"),
        "/usr/local/cuda-9.0/targets/x86_64-linux/include/cuda_runtime.h",
        *(f"{NVIDIA}/cuda_nvcc/bin/nvcc", f"{NVIDIA}/cuda_nvcc/nvvm/lib64/libnvvm.so.4"),
        *(f"{NVIDIA}/nccl/lib/libx.a", f"{NVIDIA}/cuda_runtime/include/crt/a.hpp"),
    ),
}


@pytest.mark.parametrize("judge", WRONG)
def test_wrong_names_are_found_and_sound_ones_are_not(
    judge: Callable[[list[File]], list[str]],
) -> None:
    assert judge(SOUND) == []
    for path in WRONG[judge]:
        assert judge([File("f", 1, path)]) == [path]


#: One text of each kind, none of them a secret; a broken image has a private key.
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


def test_secrets_are_found_by_their_texts(
    import_program: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what only reads them holds none."""
    module = import_program("matching_files")
    monkeypatch.setattr(module, "FIND", ("-type", "f", "-print0"))  # it leaves out /tmp
    kinds = [{**vars(kind), "folders": [str(tmp_path), "/nowhere"]} for kind in KINDS]
    (tmp_path / "ssh").write_bytes(b"\0-----BEGIN OPENSSH PRIVATE KEY-----\n\0-----END\0")
    (tmp_path / "pem.py").write_text('HEAD = "-----BEGIN RSA PRIVATE KEY-----"\nBODY = None\n')
    (tmp_path / "index").write_text("npm_config AIza ghp_ https://host/a:b@c xoxb- auth")
    (tmp_path / "botocore.json").write_text('"AKIAIOSFODNN7EXAMPLE", "AKIA111111111EXAMPLE"')
    assert module.matching(kinds) == {}
    for name, text in EXAMPLES.items():
        (tmp_path / name).write_text(text)
    found = module.matching(kinds)
    assert {kind: {Path(p).name for p in paths} for kind, paths in found.items()} == {
        name: {name} for name in EXAMPLES
    }
    assert EXAMPLES.keys() == {kind.name for kind in KINDS} - {"private key"}


def test_a_key_that_a_package_tests_with_is_no_secret() -> None:
    test_key = f"{SITE}/future/backports/test/badkey.pem"
    keys = [f"{SITE}/mine/key.pem", "/srv/tests/key.pem", f"{SITE}/test/key.pem"]
    found = in_files({"private key": [test_key, *keys]})
    assert found == sorted(f"private key: {path}" for path in keys)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("RUN aws_secret_access_key=abc ./x", ["AWS key", "aws_secret_access_key"]),
        ("https_proxy=http://proxy.example:3128", ["https_proxy"]),
        ("RUN --mount=type=secret,id=netrc,target=/run/secrets/netrc,mode=0444 sh x", []),
        ("API_TOKEN= ./x", []),
    ],
)
def test_a_configuration_is_reported_by_name_only(text: str, told: list[str]) -> None:
    assert in_texts("history", [text]) == [f"history: {name}" for name in told]


def test_every_library_that_tensorflow_opens_must_be_asked_for() -> None:
    """A TensorFlow that has no function to open one has not opened it."""
    opened = dict.fromkeys(ALWAYS_OPENED, True)
    assert refused(opened) == []
    for name in ALWAYS_OPENED:
        assert refused({**opened, name: False}) == [name]
        assert refused({one: True for one in opened if one != name}) == [name]


LAZY = "TypeError: can't pickle _LazyLoader objects"
ENDLESS = "RecursionError: maximum recursion depth exceeded while calling a Python object"


@pytest.mark.parametrize(
    ("tensorflow", "sender", "answer"),
    [
        ((1, 15, 5), None, ENDLESS),  # another fault than the documented one
        ((1, 15, 0), None, [3, "RunConfig"]),  # it arrives after all
        ((2, 0, 0), None, ENDLESS),  # another process has it
        ((2, 2, 0), LAZY, None),  # it arrives no more
        ((2, 2, 0), None, ENDLESS),
    ],
)
def test_what_becomes_of_a_sent_module_is_as_documented_or_a_fault(
    tensorflow: tuple[int, ...], sender: str | None, answer: object
) -> None:
    assert fault_of_module(tensorflow, sender, answer) is not None
    assert fault_of_module((2, 0, 0), LAZY, None) is None


def test_what_becomes_of_a_sent_model_differs_by_release() -> None:
    unknown = "ValueError: Unknown layer: 'Scale'. Please ensure"
    refused = "TypeError: cannot pickle '_thread.RLock' object"
    judged = [fault_of_model((2, minor), None, unknown) is None for minor in (6, 8, 11, 13, 16)]
    assert judged == [False, False, True, False, False]
    assert fault_of_model((2, 6), refused, None) is None
    assert fault_of_model((2, 8), refused, None) is not None


@pytest.mark.parametrize(
    ("buckets", "fault"),
    [
        ([[-1.0, 0.0, 2], [0.0, 2.0, 2]], "[-1.0, 0.0) counts 2, holds 1"),
        ([[-1.0, 0.0, 1], [0.0, 1.0, 2]], "3 values in all, written: 4"),
        ([[-2.0, 2.0, 4]], "least to greatest value: (-2.0, 2.0)"),
        ([], "0 values in all, written: 4"),
    ],
)
def test_wrong_buckets_are_told(buckets: list[list[float]], fault: str) -> None:
    # The older format: first and last are cut at least and greatest value, before they begin.
    right = [[-1.0, -1.1, 0], [-1.1, 0.0, 1], [0.0, 1.9, 2], [1.9, 2.1, 1], [2.1, 2.0, 0]]
    assert wrong_buckets(right, [-1.0, 0.0, 0.5, 2.0]) == []
    assert any(fault in told for told in wrong_buckets(buckets, [-1.0, 0.0, 0.5, 2.0]))


def test_a_check_at_start_that_contradicts_the_wheel_is_found() -> None:
    words = ["sm_60", "sm_80", "compute_90"]
    facts = {"native": ["6.0", "8.0", "9.0"], "ptx": ["9.0"]}
    assert contradictions(facts, words) == []
    assert contradictions(facts, None) == [], "old wheels say nothing"
    assert contradictions({**facts, "ptx": ["8.0"]}, words) == ["compute_80", "compute_90"]
    assert contradictions({**facts, "native": ["6.0", "9.0"]}, words) == ["sm_80"]
    assert contradictions({**facts, "native": [*facts["native"], "8.6"]}, words) == ["sm_86"]
