"""Statements about versions, and the requirement lines nearest to a program."""

from collections.abc import Callable
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from imgbuild.adopt.closure import Entry
from imgbuild.adopt.history import History
from imgbuild.adopt.repository import Evidence, Repository, open_repository
from imgbuild.adopt.source_facts import SourceFacts
from imgbuild.adopt.statements import (
    find_declarations,
    read_named_packages,
    read_requested,
    read_stated_python,
    read_statements,
)

Make = Callable[[dict[str, str]], Repository]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Return how to make a repository of these texts."""

    def make_repository(texts: dict[str, str]) -> Repository:
        for path, text in texts.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
        return open_repository(tmp_path)

    return make_repository


def entry(path: str) -> Entry:
    return Entry(path, Evidence(path))


def stated(repository: Repository, path: str = "train.py", **history: object) -> list[str]:
    """Return each statement as ``kind place specifier``."""
    statements = read_statements(repository, History(**history), entry(path))  # type: ignore[arg-type]
    return [f"{item.kind} {item.evidence} {item.specifier}" for item in statements]


def requested(repository: Repository, path: str = "train.py") -> list[str]:
    lines, _ = read_requested(repository, History(), entry(path))
    return [f"{line.evidence} {line.text}" for line in lines]


@pytest.mark.parametrize(
    ("line", "specifier"),
    [
        ("tensorflow==1.15.3", "==1.15.3"),
        ("tensorflow_gpu==1.3.0", "==1.3.0"),
        ("tensorflow-gpu>=1.3,<2", "<2,>=1.3"),
        ("tensorflow=1.12", "==1.12"),
        ("tensorflow-1.8", "==1.8"),
        ("https://example.org/tensorflow-1.4.0-cp35-cp35m-linux_x86_64.whl", "==1.4.0"),
    ],
)
def test_statements_of_requirement_lines(make: Make, line: str, specifier: str) -> None:
    repository = make({"requirements.txt": f"numpy\n{line}  # note\n"})
    assert stated(repository) == [f"requirements requirements.txt:2 {specifier}"]


def test_statements_come_from_all_kinds_of_files(make: Make) -> None:
    texts = {
        "README.md": "# X\n\nTensorFlow 1.8\n",
        "Dockerfile": "ARG V=1.9.0\nFROM tensorflow/tensorflow:${V}-gpu\n",
        ".travis.yml": "install: pip install tensorflow==1.7\n",
        ".github/workflows/test.yml": "env:\n  TF_VERSION: 1.11\n",
        "setup.py": "setup(install_requires=['tensorflow>=1.4'])\n",
        "environment.yml": "dependencies:\n  - tensorflow=1.13\n",
    }
    assert stated(make(texts)) == [
        "environment.yml environment.yml:2 ==1.13.*",
        "setup.py setup.py:1 >=1.4",
        "Dockerfile Dockerfile:2 ==1.9.0",
        "README README.md:3 ==1.8",
        "CI .travis.yml:1 ==1.7",
        "CI .github/workflows/test.yml:2 ==1.11",
    ]


def test_statements_nearest_to_the_entry_come_first(make: Make) -> None:
    texts = {
        "requirements.txt": "tensorflow==1.12\n",
        "tf2/requirements.txt": "tensorflow==2.1\n",
        "tf2/train.py": "",
    }
    repository = make(texts)
    assert stated(repository, "tf2/train.py")[0].endswith("==2.1")
    assert stated(repository, "train.py")[0].endswith("==1.12")


def test_statements_of_other_programs_are_not_near(make: Make) -> None:
    texts = {"a/requirements.txt": "tensorflow==1.12\n", "docs/requirements.txt": "tensorflow==2.9"}
    statements = read_statements(make(texts), History(), entry("b/train.py"))
    assert [statement.is_near for statement in statements] == [False, False]


def test_statements_of_documentation_are_not_near(make: Make) -> None:
    repository = make({"docs/requirements.txt": "tensorflow==2.9\n"})
    (statement,) = read_statements(repository, History(), entry("train.py"))
    assert not statement.is_near


def test_statements_of_utf_16_files(tmp_path: Path) -> None:
    text = "six\ntensorflow==1.12\n"
    (tmp_path / "requirements.txt").write_bytes(text.encode("utf-16"))
    assert stated(open_repository(tmp_path)) == ["requirements requirements.txt:2 ==1.12"]


def test_statements_above_the_programs_files_are_near(make: Make) -> None:
    repository = make({"lib/setup.py": "setup(install_requires=['tensorflow==2.0'])"})
    sources = (SourceFacts("bin/train.py"), SourceFacts("lib/model/net.py"))
    (statement,) = read_statements(repository, History(), entry("bin/train.py"), sources)
    assert statement.is_near


def test_statement_of_a_bot_is_marked(make: Make) -> None:
    repository = make({"requirements.txt": "tensorflow==2.9.3\n"})
    history = History(bot_files={"requirements.txt": "six\ntensorflow==1.14.0\n"})
    own, bots = read_statements(repository, history, entry("train.py"))
    assert (own.specifier, own.evidence.line, own.by_bot) == ("==1.14.0", 2, False)
    assert (bots.specifier, bots.evidence.line, bots.by_bot) == ("==2.9.3", 1, True)


def test_statement_keeps_its_marker(make: Make) -> None:
    line = "tensorflow>=2.5,<2.14; python_version>='3.11'"
    (statement,) = read_statements(make({"requirements.txt": line}), History(), None)
    assert statement.marker == 'python_version >= "3.11"'


def test_statements_of_the_programs_own_files(make: Make) -> None:
    code = (
        "# Tested with TensorFlow 1.12\n# TensorFlow 0.12\n"
        "import tensorflow as tf\nassert tf.__version__ == '1.8'\n"
    )
    repository = make({"train.py": code})
    sources = (
        SourceFacts("train.py", version_checks=((9, ">=1.7"),)),
        SourceFacts("a.ipynb", is_notebook=True, commands=((2, "pip install tensorflow==1.15"),)),
    )
    statements = read_statements(repository, History(), entry("train.py"), sources)
    assert [(str(item.evidence), item.specifier) for item in statements] == [
        ("a.ipynb:2", "==1.15"),
        ("train.py:1", "==1.12"),
        ("train.py:4", "==1.8"),
        ("train.py:9", ">=1.7"),
    ]


def test_named_packages_are_of_the_whole_repository(make: Make) -> None:
    repository = make(
        {
            "requirements-dev.txt": "arm_world==1.2\n-e git+https://example.invalid/far#egg=far\n",
            "setup.py": "setup(install_requires=['a'], extras_require={'sim': ['simworld>=2']})",
            "README.md": "Run `pip install -U lab-tools 'grip[x]>1' ./own` first",
        }
    )
    cells = SourceFacts("a.ipynb", is_notebook=True, commands=((2, "!pip install -q deep"),))
    names = read_named_packages(repository, [cells])
    assert names >= {"arm-world", "a", "simworld", "lab-tools", "grip", "deep"}
    assert not {"far", "own", "-u"} & names


@pytest.mark.parametrize(
    ("pin", "specifier"),
    [("2.1.6", "<2"), ("2.3.1", "<2.2,>=1.13"), ("2.8.0", "==2.8"), ("3.1.0", ">=2.16")],
)
def test_statements_implied_by_keras(make: Make, pin: str, specifier: str) -> None:
    (statement,) = read_statements(make({"requirements.txt": f"Keras=={pin}"}), History(), None)
    assert SpecifierSet(statement.specifier) == SpecifierSet(specifier)
    assert statement.is_implied


def test_conda_files_have_any_name(make: Make) -> None:
    texts = {"setup/linux.yml": "name: x\ndependencies:\n  - tensorflow=1.12\n", "a.yml": "b: c\n"}
    assert stated(make(texts)) == ["environment.yml setup/linux.yml:3 ==1.12.*"]


def test_declarations_include_files_by_use(make: Make) -> None:
    names = ("requirements.txt", "requirements/base.txt", "setup.py", "env/conda_env.yml")
    repository = make(dict.fromkeys((*names, "notes.txt", "data/list.txt"), "x\n"))
    assert set(find_declarations(repository)) == set(names)


def test_declarations_of_the_root_are_within_limits(make: Make) -> None:
    texts = {f"d{number}/requirements.txt": "six\n" for number in range(320)}
    kinds = find_declarations(make({**texts, "setup.py": "setup()\n"}))
    assert "setup.py" in kinds
    assert len(kinds) == 300


def test_declarations_are_parsed_within_limits(make: Make) -> None:
    large, fitting = "#" * 100_001, "#" * 100_000
    repository = make({"setup.py": large, **{f"d{i:02}/setup.py": fitting for i in range(12)}})
    assert sorted(find_declarations(repository)) == [f"d{i:02}/setup.py" for i in range(10)]
    assert any(note.startswith("setup.py: not read") for note in repository.notes)


def test_requested_lines_are_of_the_nearest_file(make: Make) -> None:
    texts = {"requirements.txt": "numpy\n", "lab/requirements.txt": "scipy\n", "lab/run.py": ""}
    assert requested(make(texts), "lab/run.py") == ["lab/requirements.txt:1 scipy"]


def test_requested_lines_prefer_folders_above(make: Make) -> None:
    texts = {"setup.py": "setup(install_requires=['a'])", "lab/x/requirements.txt": "b\n"}
    assert requested(make(texts), "lab/run.py") == ["setup.py:1 a"]


def test_requested_lines_have_a_limit_of_includes(make: Make) -> None:
    texts = {f"r{number}.txt": f"a{number}\n" for number in range(60)}
    included = "".join(f"-r {name}\n" for name in texts)
    assert len(requested(make({**texts, "requirements.txt": included}))) == 49


def test_requested_lines_follow_includes(make: Make) -> None:
    texts = {
        "requirements.txt": "-r requirements/base.txt\ntqdm\n",
        "requirements/base.txt": "-r ../requirements.txt\n-r base.txt\nnumpy==1.14\n",
    }
    assert requested(make(texts)) == [
        "requirements.txt:2 tqdm",
        "requirements/base.txt:3 numpy==1.14",
    ]


def test_requested_lines_of_constraints_are_marked(make: Make) -> None:
    repository = make({"requirements.txt": "-c pins.txt\nsix\n", "pins.txt": "six==1.10\n"})
    lines, _ = read_requested(repository, History(), None)
    assert [(line.text, line.constrains) for line in lines] == [("six", False), ("six==1.10", True)]


def test_requested_lines_come_from_commands_at_last(make: Make) -> None:
    text = "FROM x\nRUN pip install --upgrade \\\n    numpy==1.14 tqdm && rm -r x==1\n"
    lines, _ = read_requested(make({"Dockerfile": text}), History(), None)
    assert [(str(line.evidence), line.text, line.constrains) for line in lines] == [
        ("Dockerfile:2", "numpy==1.14", True)
    ]


def test_requested_lines_follow_the_readme(make: Make) -> None:
    texts = {"README.md": "pip install -r docs/requirements.txt", "docs/requirements.txt": "six"}
    assert requested(make(texts)) == ["docs/requirements.txt:1 six"]


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "https://example.org/r.txt"])
def test_requested_lines_stay_in_the_repository(make: Make, name: str) -> None:
    repository = make({"requirements.txt": f"-r {name}\nsix\n"})
    lines, notes = read_requested(repository, History(), entry("train.py"))
    assert [line.text for line in lines] == ["six"]
    assert any(name in note and "requirements.txt:1" in note for note in notes)


def test_requested_lines_prefer_the_program_to_tools(make: Make) -> None:
    texts = {
        "requirements-dev.txt": "pytest\n",
        "requirements-gpu.txt": "tensorflow-gpu\n",
        "requirements.txt": "numpy\n",
    }
    lines, notes = read_requested(make(texts), History(), None)
    assert [line.text for line in lines] == ["numpy"]
    assert notes == ("requirements.txt is used, not requirements-gpu.txt",)


def test_requested_lines_are_not_of_tools(make: Make) -> None:
    assert requested(make({"requirements-dev.txt": "pytest\n"})) == []


def test_requested_lines_skip_extras_and_python(make: Make) -> None:
    text = "setup(python_requires='>=3', install_requires=['a'], extras_require={'t': ['b']})"
    assert requested(make({"setup.py": text})) == ["setup.py:1 a"]


def test_requested_lines_are_those_before_a_bot(make: Make) -> None:
    repository = make({"requirements.txt": "pillow==9.3\n"})
    history = History(bot_files={"requirements.txt": "pillow==5.0\n"})
    lines, notes = read_requested(repository, history, None)
    assert [line.text for line in lines] == ["pillow==5.0"]
    assert "bot" in notes[0]


def test_requested_lines_of_a_conda_list(make: Make) -> None:
    repository = make({"requirements.txt": "numpy=1.14.2=py36h1_0\nzlib=1.2.11=h1_0\n"})
    assert requested(repository) == ["requirements.txt:1 numpy==1.14.2"]


@pytest.mark.parametrize(
    ("texts", "specifier"),
    [
        ({"README.md": "Python 2.7 or Python 3.5\n", "runtime.txt": "python-3.6.8\n"}, "==3.6.*"),
        ({"README.md": "Runs with Python 2.7 and Python 3.5\n"}, "==3.5.*"),
        ({"environment.yml": "dependencies: [python=3.7]", "README.md": "Python 3.5"}, "==3.7.*"),
    ],
)
def test_stated_python_has_an_order(make: Make, texts: dict[str, str], specifier: str) -> None:
    statement = read_stated_python(make(texts))
    assert statement is not None
    assert statement[1] == specifier


def test_stated_python_may_be_missing(make: Make) -> None:
    texts = {"README.md": "Monty Python\n", "docs/README.md": "Python 3.5\n"}
    assert read_stated_python(make(texts)) is None
