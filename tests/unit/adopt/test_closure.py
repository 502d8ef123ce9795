"""Programs of a repository, and the modules that they import."""

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from imgbuild.adopt import closure as module
from imgbuild.adopt.closure import (
    Closure,
    Entry,
    find_closure,
    find_entries,
    read_sources,
)
from imgbuild.adopt.python_code import read_source
from imgbuild.adopt.readme_commands import read_commands
from imgbuild.adopt.repository import Evidence, Repository, open_repository
from imgbuild.adopt.source_facts import SourceFacts

MAIN = "import tensorflow as tf\nif __name__ == '__main__':\n    tf.app.run()\n"


def _make(folder: Path, files: dict[str, str]) -> tuple[Repository, dict[str, SourceFacts]]:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    repository = open_repository(folder)
    texts = {path: repository.read_text(path) for path in repository.files}
    sources = {
        path: read_source(path, text) for path, text in texts.items() if path.endswith(".py")
    }
    return repository, sources


def _close(folder: Path, files: dict[str, str], entry: str, **fields: str) -> Closure:
    repository, sources = _make(folder, files)
    return find_closure(repository, sources, Entry(entry, Evidence(entry), **fields))  # type: ignore[arg-type]


def _paths(closure: Closure) -> list[str]:
    return [facts.path for facts in closure.sources]


def _names(closure: Closure) -> dict[str, str]:
    return {imported.module: imported.kind for imported, _ in closure.imports}


def _entries(folder: Path, files: dict[str, str]) -> list[Entry]:
    repository, _ = _make(folder, files)
    return [*find_entries(repository, read_sources(repository))]


def test_closure_has_modules_beside_the_program(tmp_path: Path) -> None:
    files = {
        "src/train.py": "import model, numpy\nfrom lib import loss\nimport os",
        "src/model.py": "import tensorflow as tf",
        "src/lib/__init__.py": "",
        "src/lib/loss.py": "import scipy.misc",
        "other.py": "import torch",
    }
    closure = _close(tmp_path, files, "src/train.py")
    assert _paths(closure)[0] == "src/train.py"
    assert {*_paths(closure)} == {*files} - {"other.py"}
    assert _names(closure) == {
        "numpy": "required",
        "tensorflow": "required",
        "scipy.misc": "required",
    }
    assert closure.roots == ()
    evidence = {imported.module: evidence for imported, evidence in closure.imports}
    assert str(evidence["scipy.misc"]) == "src/lib/loss.py:1"


@pytest.mark.parametrize(
    ("files", "roots"),
    [
        ({"scripts/train.py": "import pkg.model", "pkg/model.py": "import six"}, [""]),
        ({"examples/train.py": "import churn.net", "src/churn/net.py": ""}, ["src"]),
        (
            {
                "a/train.py": "import sys\nsys.path.append('../deep/b')\nimport net",
                "deep/b/net.py": "",
            },
            ["deep/b"],
        ),
        (
            {
                "train.py": "import nets.vgg",
                "code/tools/nets/vgg.py": "import helper_x",
                "code/tools/nets/helper_x.py": "",
            },
            ["code/tools", "code/tools/nets"],
        ),
    ],
    ids=["repository", "source", "sys.path", "unusual"],
)
def test_closure_roots_are_found(tmp_path: Path, files: dict[str, str], roots: list[str]) -> None:
    program = next(iter(files))
    closure = _close(tmp_path, files, program)
    assert _paths(closure) == [*files]
    assert closure.roots == (*roots,)


def test_closure_known_packages_are_not_searched(tmp_path: Path) -> None:
    files = {
        "train.py": "import tensorflow, six, torch.x\nimport backends.tensorflow",
        "backends/tensorflow.py": "import tensorflow",
        "third_party/six.py": "",
        "torch/x.py": "",
    }
    closure = _close(tmp_path, files, "train.py")
    assert {*_names(closure)} == {"tensorflow", "six", "torch.x"}
    assert closure.roots == ()


def test_closure_folder_of_tensorflow_is_no_package(tmp_path: Path) -> None:
    files = {"tensorflow/train.py": "import tensorflow.contrib\nimport net", "net.py": ""}
    closure = _close(tmp_path, files, "tensorflow/train.py")
    assert {*_names(closure)} == {"tensorflow.contrib"}
    assert closure.roots == ("",)


def test_closure_roots_hide_no_installed_modules(tmp_path: Path) -> None:
    files = {
        "keras/__init__.py": "",
        "queue.py": "",
        "net.py": "",
        "a/train.py": "import keras, net, queue",
    }
    closure = _close(tmp_path, files, "a/train.py")
    assert _paths(closure) == ["a/train.py", "net.py"]
    assert {*_names(closure)} == {"keras"}


def test_closure_own_module_hides_pythons(tmp_path: Path) -> None:
    closure = _close(tmp_path, {"train.py": "import queue", "queue.py": ""}, "train.py")
    assert _paths(closure) == ["train.py", "queue.py"]


def test_closure_cyclic_imports_end(tmp_path: Path) -> None:
    files = {
        "a.py": "import b, a",
        "b.py": "from c import d",
        "c/__init__.py": "from . import d",
        "c/d.py": "from .. import a\nfrom . import d\nimport a, gym",
    }
    closure = _close(tmp_path, files, "a.py")
    assert {*_paths(closure)} == {*files}
    assert {*_names(closure)} == {"gym"}


def test_closure_relative_imports(tmp_path: Path) -> None:
    files = {
        "pkg/__init__.py": "",
        "pkg/train.py": "from .nets import vgg\nfrom . import loss\nfrom ..x import y",
        "pkg/nets/__init__.py": "",
        "pkg/nets/vgg.py": "from ..loss import L\nfrom ....above import x",
        "pkg/loss.py": "from .gone import x",
    }
    closure = _close(tmp_path, files, "pkg/train.py", module="pkg.train")
    assert {*_paths(closure)} == {*files}
    assert [str(evidence) for _, evidence in closure.missing] == ["pkg/train.py:3", "pkg/loss.py:1"]


def test_closure_kind_weakens_along_the_way(tmp_path: Path) -> None:
    files = {
        "train.py": "import a\ndef f(): import b\ntry: import c\nexcept ImportError: pass",
        "a.py": "def f():\n    import gym",
        "b.py": "import tqdm, six\nimport c",
        "c.py": "import six, numba",
    }
    kinds = {"gym": "wanted", "tqdm": "wanted", "six": "wanted", "numba": "wanted"}
    assert _names(_close(tmp_path, files, "train.py")) == kinds


def test_closure_strongest_import_is_evidence(tmp_path: Path) -> None:
    files = {
        "train.py": "def f():\n    import gym\nimport a",
        "a.py": "import os\nimport gym.spaces\nimport gym",
    }
    closure = _close(tmp_path, files, "train.py")
    assert [str(evidence) for _, evidence in closure.imports] == ["a.py:2"]


def test_closure_dynamic_imports_take_the_package(tmp_path: Path) -> None:
    files = {
        "train.py": "import importlib\nimportlib.import_module('models.' + name)",
        "models/vgg.py": "import h5py",
        "models/net.py": "",
    }
    closure = _close(tmp_path, files, "train.py")
    assert {*_paths(closure)} == {*files}
    assert _names(closure) == {"h5py": "wanted"}


def test_closure_checkout_is_the_package(tmp_path: Path) -> None:
    folder = tmp_path / "churn-net-master"
    files = {
        "__init__.py": "",
        "train.py": "from churn_net.model import Net\nimport churn_net.utils.io",
        "model.py": "import gym",
        "utils/io.py": "",
    }
    closure = _close(folder, files, "train.py")
    assert closure.package_name == "churn_net"
    assert {*_paths(closure)} == {*files}
    assert {*_names(closure)} == {"gym"}


def test_closure_checkout_is_the_package_of_a_module(tmp_path: Path) -> None:
    files = {"train.py": "from churn.model import Net", "model.py": "import gym"}
    closure = _close(tmp_path, files, "train.py", module="churn.train")
    assert closure.package_name == "churn"
    assert _paths(closure) == ["train.py", "model.py"]


def test_closure_other_packages_are_not_the_checkout(tmp_path: Path) -> None:
    files = {"__init__.py": "", "train.py": "from gym.utils import x\nimport six", "utils.py": ""}
    closure = _close(tmp_path, files, "train.py")
    assert closure.package_name == ""
    assert {*_names(closure)} == {"gym.utils", "six"}


def test_closure_own_names_are_missing_not_packages(tmp_path: Path) -> None:
    files = {"train.py": "from utils.io import x\nimport net_pb2, _ext\nimport gym"}
    closure = _close(tmp_path, files, "train.py")
    assert {*_names(closure)} == {"gym"}
    assert [imported.module for imported, _ in closure.missing] == ["utils.io", "net_pb2", "_ext"]


def test_closure_shared_names_stay_apart(tmp_path: Path) -> None:
    files = {"train.py": "import google.protobuf.text_format\nfrom google import cloud"}
    closure = _close(tmp_path, files, "train.py")
    assert [*_names(closure)] == ["google.protobuf.text_format", "google.cloud"]


def test_closure_cython_has_to_be_compiled(tmp_path: Path) -> None:
    files = {
        "run.py": "from box.fast import join\nfrom box import slow",
        "box/__init__.py": "",
        "box/fast.pyx": "",
        "box/slow.py": "from .nms import keep",
        "box/nms.pyx": "",
        "box/unused.pyx": "",
    }
    assert _close(tmp_path, files, "run.py").compiled == ("box/fast.pyx", "box/nms.pyx")


def test_entries_of_readme_come_first(tmp_path: Path) -> None:
    files = {
        "README.md": "# Run\n\n```\n$ CUDA_VISIBLE_DEVICES=0 python3 -u a.py --epochs 10 "
        "--data_dir=PATH --out <dir> --lr 0.1 > log.txt\n```\n",
        "a.py": MAIN,
        "train.py": MAIN,
        "b.ipynb": '{"cells": [{"cell_type": "code", "source": "import tensorflow"}]}',
    }
    first, second, third = _entries(tmp_path, files)
    assert first == Entry(
        "a.py", Evidence("README.md", 4), ("--epochs", "10", "--lr", "0.1"), folder=""
    )
    assert second == Entry("train.py", Evidence("train.py", 2))
    assert (third.path, third.is_notebook) == ("b.ipynb", True)


@pytest.mark.parametrize(
    ("readme", "path", "folder", "module_name", "arguments"),
    [
        ("Run `python pkg/main.py --x 1` to train.", "pkg/main.py", "", "", ("--x", "1")),
        ("Run python pkg/main.py to train the model.", "pkg/main.py", "", "", ()),
        ("    cd churn/pkg && python main.py a", "pkg/main.py", "pkg", "", ("a",)),
        ("cd pkg\npython ./main.py", "pkg/main.py", "pkg", "", ()),
        ("git clone x\ncd churn\npython main.py", "pkg/main.py", "pkg", "", ()),
        ("python -m pkg.main --x \\\n   --y 2", "pkg/main.py", "", "pkg.main", ("--x", "--y", "2")),
        ("$ mpirun -np 4 python pkg/main.py", "pkg/main.py", "", "", ()),
        ("<code>python pkg/main.py --x</code>", "pkg/main.py", "", "", ("--x",)),
        ("python pkg\\main.py # train it", "pkg/main.py", "", "", ()),
        ("python setup.py install; python pkg/main.py", "pkg/main.py", "", "", ()),
        ("python pkg/main.py [--x N] 'a b' $DATA ...", "pkg/main.py", "", "", ("a b",)),
        ('python pkg/main.py "unclosed', "pkg/main.py", "", "", ('"unclosed',)),
        ("python pkg/main.py --x\x1b[31m --y", "pkg/main.py", "", "", ("--y",)),
        ("python -W ignore pkg/main.py", "pkg/main.py", "", "", ()),
        ("python -cx pkg/main.py --y\npython pkg/main.py --x", "pkg/main.py", "", "", ("--x",)),
        ("Run `python pkg/main.py --x 1, then wait`.", "pkg/main.py", "", "", ("--x",)),
        (f"python pkg/main.py {'a' * 600} b", "pkg/main.py", "", "", ("b",)),
    ],
)
def test_entries_commands_are_read(  # noqa: PLR0913, PLR0917 - a table
    tmp_path: Path,
    readme: str,
    path: str,
    folder: str,
    module_name: str,
    arguments: tuple[str, ...],
) -> None:
    files = {"README.md": readme, "pkg/main.py": MAIN, "setup.py": "", "churn.txt": ""}
    entry = _entries(tmp_path / "churn", files)[0]
    assert (entry.path, entry.folder, entry.module) == (path, folder, module_name)
    assert entry.arguments == arguments
    assert entry.evidence.path == "README.md"


@pytest.mark.parametrize(
    ("readme", "path"),
    [("a/b/c/README.md", "run.py"), ("a/b/README.md", "a/b/README.md")],
)
def test_entries_deep_readmes_are_not_read(tmp_path: Path, readme: str, path: str) -> None:
    (entry,) = _entries(tmp_path, {readme: "python run.py", "run.py": MAIN})
    assert entry.evidence.path == path


def test_entries_module_of_another_package_is_none(tmp_path: Path) -> None:
    (entry,) = _entries(tmp_path, {"README.md": "python -m torch.run", "run.py": MAIN})
    assert entry.evidence.path == "run.py"


def test_entries_listed_files_are_no_programs(tmp_path: Path) -> None:
    files = {"net.py": "import keras", "layers.py": "import keras"}
    assert _entries(tmp_path, {**files, "README.md": "./net.py\n"}) == []


@pytest.mark.parametrize(
    ("text", "folder"),
    [("cd a\npython x.py", "a"), ("cd a\ncd ..\npython x.py", ""), ("cd b\npython x.py", "")],
)
def test_commands_follow_changes_of_folder(text: str, folder: str) -> None:
    commands = [*read_commands(text, {"", "a"})]
    assert [(folder, words) for _, folder, words in commands] == [(folder, ("x.py",))]


def test_commands_are_limited() -> None:
    assert len([*read_commands("python x.py\n" * 1000, {""})]) == 300


def test_entries_prefer_a_command_without_gaps(tmp_path: Path) -> None:
    usage = "python a.py --help\npython b.py\npython a.py --alg=<name of it> [more arguments]\n"
    files = {"README.md": f"{usage}python a.py --alg=x\n", "a.py": MAIN, "b.py": MAIN}
    first, second = _entries(tmp_path, files)
    assert (first.path, first.arguments, first.evidence.line) == ("a.py", ("--alg=x",), 4)
    assert second.path == "b.py"


def test_entries_keep_a_command_with_gaps(tmp_path: Path) -> None:
    files = {"README.md": "python a.py --data=<a folder> --size [a, b] --fast", "a.py": MAIN}
    assert [entry.arguments for entry in _entries(tmp_path, files)] == [("--fast",)]


def test_entries_module_of_the_checkout(tmp_path: Path) -> None:
    files = {"README.md": "$ python -m churn.run.train --x", "run/train.py": MAIN}
    entry = _entries(tmp_path / "other-name", files)[0]
    assert (entry.path, entry.module) == ("run/train.py", "churn.run.train")


def test_entries_training_precedes_preparation(tmp_path: Path) -> None:
    files = {
        "README.md": "python download.py\npython eval.py\npython train.py",
        "download.py": "import tensorflow",
        "eval.py": "print(1)",
        "train.py": "import net",
        "net.py": "import keras",
    }
    paths = [entry.path for entry in _entries(tmp_path, files)]
    assert paths == ["train.py", "download.py", "eval.py"]


def test_entries_by_name_and_nearness(tmp_path: Path) -> None:
    names = ("a/b/train.py", "a/main.py", "tests/train.py", "zebra.py", "run.py", "test_x.py")
    files = dict.fromkeys((*names, "setup.py", "conftest.py"), MAIN)
    paths = [entry.path for entry in _entries(tmp_path, files)]
    assert paths == [
        "run.py",
        "a/main.py",
        "a/b/train.py",
        "zebra.py",
        "tests/train.py",
        "test_x.py",
    ]


def test_entries_relative_import_needs_a_module(tmp_path: Path) -> None:
    files = {
        "src/pkg/__init__.py": "",
        "src/pkg/train.py": f"from . import net\n{MAIN}",
        "src/pkg/net.py": "",
        "src/tool/__main__.py": MAIN,
    }
    modules = {(entry.module, entry.folder) for entry in _entries(tmp_path, files)}
    assert modules == {("pkg.train", "src"), ("tool", "src")}


def test_entries_of_shell_scripts(tmp_path: Path) -> None:
    files = {"run.sh": "#!/bin/sh\npython train.py --x $1 --y 2\n", "train.py": MAIN}
    entry = _entries(tmp_path, files)[0]
    assert (str(entry.evidence), entry.arguments) == ("run.sh:2", ("--y", "2"))


def test_entries_scripts_without_main_and_suffix(tmp_path: Path) -> None:
    files = {"net.py": "import keras\nmodel.fit()", "flow": "#!/usr/bin/env python\nimport keras"}
    assert {entry.path for entry in _entries(tmp_path, files)} == {"flow", "net.py"}


def test_entries_hostile_readme_is_bounded(tmp_path: Path) -> None:
    bombs = (
        "python " * 100_000,
        "`" * 300_000,
        "cd a/" * 50_000,
        "a=b " * 50_000,
        "python x.py\n" * 50_000,
        "\\\n" * 100_000,
        "mpirun -n 1 " * 20_000,
        "(" * 200_000,
        "python train.py " + "--" * 100_000,
        "python " + "../" * 50_000 + "etc/passwd.py",
    )
    files = {f"{number}/README.md": text for number, text in enumerate(bombs)}
    repository, sources = _make(tmp_path, files | {"train.py": MAIN})
    before = time.process_time()
    entries = find_entries(repository, sources)
    assert time.process_time() - before < 10
    assert {entry.path for entry in entries} == {"train.py"}


def test_sources_are_read_in_another_process(tmp_path: Path) -> None:
    files = {
        "a.py": "import tensorflow as tf\ntf.placeholder()",
        "b.ipynb": '{"cells": [{"cell_type": "code", "source": "import keras"}]}',
        "c.txt": "import x",
    }
    repository, sources = _make(tmp_path, files)
    read = read_sources(repository)
    assert {*read} == {"a.py", "b.ipynb"}
    assert read["a.py"] == sources["a.py"]
    assert read["b.ipynb"].imports[0].module == "keras"


def test_sources_that_end_the_parser_have_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = "import resource, signal, os, sys\n"
    program += "import json; sys.path.insert(0, sys.argv[1])\n"
    program += "from imgbuild.adopt import python_code as code\n"
    program += "read = code.read_source\n"
    program += "def crash(path, text):\n"
    program += "    if 'crash' in text: os.kill(os.getpid(), signal.SIGSEGV)\n"
    program += "    if 'slow' in text:\n        while True: pass\n"
    program += "    return read(path, text)\n"
    program += "code.read_source = crash; code.SOURCE_SECONDS = 0.2; code.main(30.0)\n"
    monkeypatch.setattr(module, "_PROGRAM", program)
    files = {"a.py": "", "b.py": "crash", "c.py": "import x", "d.py": "slow", "e.py": "import y"}
    repository, _ = _make(tmp_path, files)
    sources = read_sources(repository)
    assert [path for path, facts in sources.items() if facts.broken] == ["b.py", "d.py"]
    assert sources["e.py"].imports[0].module == "y"
    assert len(repository.notes) == 2


def test_sources_parsed_in_time_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = module._PROGRAM.replace("float(sys.argv[2])", "0.5")
    slow = "from imgbuild.adopt import python_code as code\nread = code.read_source\n"
    slow += "def wait(path, text):\n    while 'slow' in text: pass\n    return read(path, text)\n"
    slow += "code.read_source = wait\n"
    head, tail = program.split("\n")
    monkeypatch.setattr(module, "_PROGRAM", f"{head}\n{slow}{tail}")
    repository, _ = _make(tmp_path, {"a.py": "import x", "b.py": "slow", "c.py": "import y"})
    sources = read_sources(repository)
    assert sources["a.py"].imports
    assert sources["b.py"].broken
    assert sources["c.py"].imports


def test_closure_of_hostile_sources_is_bounded(tmp_path: Path) -> None:
    repository, _ = _make(tmp_path, {"a.py": ""})
    text = "".join(f"import utils.x{n}, m{n}\nfrom n{n} import a, b\n" for n in range(300))
    facts = read_source("a.py", f"import importlib\n{text}")
    paths = [f"d{n}/utils/x/y.py" for n in range(500)]
    paths += [f"m{n}.py" for n in range(300)] + [f"p/n{n}.py" for n in range(300)]
    sources = {path: replace(facts, path=path) for path in ["a.py", *paths]}
    before = time.process_time()
    closure = find_closure(repository, sources, Entry("a.py", Evidence("a.py")))
    find_entries(repository, sources)
    assert 1 < len(closure.sources) < 100
    assert time.process_time() - before < 30


@pytest.mark.parametrize(
    ("name", "sources", "roots"), [("_MOST_SOURCES", 1, 2), ("_MOST_ROOTS", 3, 1)]
)
def test_closure_has_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, sources: int, roots: int
) -> None:
    monkeypatch.setattr(module, name, 1)
    files = {"train.py": "import a\nimport b", "x/y/a.py": "", "x/z/b.py": ""}
    closure = _close(tmp_path, files, "train.py")
    assert len(closure.sources) == sources
    assert len(closure.roots) == roots


def test_entries_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_ENTRIES", 2)
    assert len(_entries(tmp_path, {f"{name}.py": MAIN for name in "abc"})) == 2


def test_sources_have_a_limit_of_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PARSE_SECONDS", 0.0)
    repository, _ = _make(tmp_path, {"a.py": ""})
    assert read_sources(repository) == {}
    assert repository.notes


def test_sources_use_no_module_of_the_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    canary = tmp_path / "canary"
    trap = f"open({str(canary)!r}, 'w')\n"
    names = ("ast", "json", "imgbuild/__init__", "sitecustomize", "usercustomize", "re")
    repository, _ = _make(tmp_path / "code", {f"{name}.py": trap for name in names})
    monkeypatch.chdir(tmp_path / "code")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "code"))
    monkeypatch.setenv("PYTHONSTARTUP", str(tmp_path / "code/ast.py"))
    assert len(read_sources(repository)) == len(names)
    assert not canary.exists()


def test_sources_of_a_large_repository_take_seconds(tmp_path: Path) -> None:
    body = "".join(f"def f{n}(a, b):\n    return tf.layers.dense(a, b + {n})\n" for n in range(20))
    files = dict[str, str]()
    for n in range(500):
        head = f"import tensorflow as tf\nfrom pkg{n % 7} import m{n % 490}\n"
        files[f"pkg{n % 10}/m{n}.py"] = head + body
    repository, _ = _make(tmp_path, files | {"train.py": "import pkg1.m1\n" + MAIN})
    before = time.process_time()
    sources = read_sources(repository)
    entries = find_entries(repository, sources)
    assert len(sources) == 501
    assert entries[0].path == "train.py"
    assert time.process_time() - before < 20


@pytest.mark.parametrize("name", ["DEVELOPERS.md", "INSTALL.txt", "getting_started.md"])
def test_entries_of_other_guides(tmp_path: Path, name: str) -> None:
    files = {name: "    python src/sample.py --k 3\n", "src/sample.py": MAIN}
    (entry, *_) = _entries(tmp_path, files)
    assert entry.path == "src/sample.py"
    assert entry.folder == ""
    assert entry.arguments == ("--k", "3")


def test_entries_read_usage_of_the_program(tmp_path: Path) -> None:
    usage = (
        '"""Usage:\n    python main.py --task=sine <options>\n    python main.py --task=b\n"""\n'
    )
    (entry,) = _entries(tmp_path, {"main.py": usage + MAIN})
    assert entry.arguments == ("--task=b",)
    assert str(entry.evidence) == "main.py:3"


def _cells(code: str) -> str:
    cells = [{"cell_type": "code", "source": [code]}]
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4})


def test_entries_notebooks_of_readme_precede_helpers(tmp_path: Path) -> None:
    link = "https://example.invalid/me/lab/blob/master/part%201/b.ipynb"
    files = {
        "a.ipynb": _cells("import tensorflow as tf"),
        "part 1/b.ipynb": _cells("import tensorflow as tf"),
        "helper.py": MAIN,
        "README.md": f"1. Start ([Notebook]({link}))",
    }
    assert next(entry.path for entry in _entries(tmp_path, files)) == "part 1/b.ipynb"
    (tmp_path / "README.md").write_text(f"[Demo]({link})\n\n    python helper.py")
    assert next(entry.path for entry in _entries(tmp_path, {})) == "helper.py"


def test_entries_tests_come_last(tmp_path: Path) -> None:
    files = {"tests/test_a.py": MAIN, "box/a_test.py": MAIN, "demo.ipynb": _cells("import keras")}
    assert next(entry.path for entry in _entries(tmp_path, files)) == "demo.ipynb"


def test_entries_options_named_path_are_no_gaps(tmp_path: Path) -> None:
    line = "    python a.py --image_path ~/a.jpg --mode <mode> --$x --size=3 --<name>\n"
    (entry,) = _entries(tmp_path, {"README.md": line, "a.py": MAIN})
    assert entry.arguments == ("--image_path", "~/a.jpg", "--size=3")
