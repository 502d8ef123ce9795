"""The choice of TensorFlow and its image, and refusals."""

from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from imgbuild.adopt.choice import Decision, choose_image, refuse_unsupported
from imgbuild.adopt.closure import Closure, Entry
from imgbuild.adopt.family import RELEASE_DAYS
from imgbuild.adopt.history import History
from imgbuild.adopt.repository import Evidence, open_repository
from imgbuild.adopt.source_facts import Import, SourceFacts
from imgbuild.adopt.statements import Statement
from imgbuild.core.errors import InputError
from imgbuild.matrix.images import Image
from imgbuild.matrix.model import Matrix

TODAY = date(2026, 11, 29)
Chosen = tuple[Image, tuple[Decision, ...]]
Choose = Callable[..., Chosen]


def source(path: str = "train.py", **signs: int) -> SourceFacts:
    """Return a file with each sign on so many lines; underscores stand for dots."""
    signs = {"tensorflow": 1, **signs}
    lines = {sign.replace("_v1", ".v1"): tuple(range(5, 5 + n)) for sign, n in signs.items()}
    return SourceFacts(path, tensorflow={sign.replace("tf_", "tf."): lines[sign] for sign in lines})


def closure(*sources: SourceFacts) -> Closure:
    return Closure(Entry(sources[0].path, Evidence(sources[0].path)), sources)


def said(specifier: str, kind: str = "README", **more: object) -> Statement:
    path = {"README": "README.md", "requirements": "requirements.txt"}.get(kind, kind)
    return Statement(kind, specifier, Evidence(path, 3), **more)  # type: ignore[arg-type]


@pytest.fixture
def choose(matrix: Matrix) -> Choose:
    def choose_for(code: SourceFacts, *statements: Statement, **options: object) -> Chosen:
        day = options.pop("day", None)
        history = History(code_date=date.fromisoformat(str(day)) if day else None)
        known = {code.path: code}
        options = {"today": TODAY, **options}
        return choose_image(closure(code), known, statements, history, matrix, **options)  # type: ignore[arg-type]

    return choose_for


SESSION = source(session=3, placeholder=2)
CONTRIB = source(contrib=1, tf_keras=9, function=9)
TAPE = source(tape=1, function=2)
KERAS2 = source(tf_keras=4)
BRIDGE = source(compat_v1=4)
PLAIN = source()


@pytest.mark.parametrize(
    ("code", "statement", "minor"),
    [
        (SESSION, "==1.12.0", "1.12"),
        (SESSION, "==1.8", "1.10"),
        (SESSION, "==0.12", "1.10"),
        (SESSION, "==1.*", "1.15"),
        (SESSION, ">=1.3,<1.14", "1.13"),
        (CONTRIB, "==2.2", "1.15"),
        (TAPE, "==2.6.0", "2.6"),
        (TAPE, "==1.8", "2.10"),
        (TAPE, "==2.29", "2.21"),
        (TAPE, "==2.0.0a0", "2.0"),
        (KERAS2, "==1.14", "1.14"),
        (KERAS2, "<2", "1.15"),
        (KERAS2, "~=2.3.1", "2.3"),
        (BRIDGE, "==2.4", "2.4"),
        (BRIDGE, "==1.13.1", "1.13"),
        (PLAIN, "==1.4", "1.10"),
        (source(session=4, tf_keras=2), "==2.3", "2.3"),
        (source(session=5, tf_keras=2), "==2.3", "1.15"),
        (TAPE, ">=2.2.1,<2.3", "2.2"),
    ],
)
def test_choice_follows_statement_in_family(
    choose: Choose, code: SourceFacts, statement: str, minor: str
) -> None:
    assert choose(code, said(statement, "requirements"))[0].minor == minor


@pytest.mark.parametrize(
    ("code", "day", "minor"),
    [
        (SESSION, "2019-03-01", "1.13"),
        (SESSION, "2017-07-01", "1.10"),
        (SESSION, "2022-03-01", "1.15"),
        (TAPE, "2018-10-01", "1.11"),
        (TAPE, "2021-09-01", "2.6"),
        (KERAS2, "2018-10-01", "1.11"),
        (KERAS2, "2019-08-01", "1.14"),
        (KERAS2, "2020-06-01", "2.2"),
        (BRIDGE, "2018-01-01", "1.13"),
        (PLAIN, "2018-12-01", "1.12"),
        (source(keras=5), "2019-01-01", "1.12"),
    ],
)
def test_choice_without_statement_follows_date(
    choose: Choose, code: SourceFacts, day: str, minor: str
) -> None:
    assert choose(code, day=day)[0].minor == minor


@pytest.mark.parametrize(
    ("code", "minor"),
    [
        (SESSION, "1.15"),
        (BRIDGE, "1.15"),
        (TAPE, "2.10"),
        (KERAS2, "2.10"),
        (source(keras=5), "1.15"),
        (source(session=2, tape=2), "1.15"),
        (source(session=2, tape=3), "2.10"),
    ],
)
def test_choice_without_statement_and_date(choose: Choose, code: SourceFacts, minor: str) -> None:
    image, decisions = choose(code)
    assert image.minor == minor
    assert decisions[2].value == ""


def test_lower_bound_does_not_lift_the_date(choose: Choose) -> None:
    assert choose(TAPE, said(">=2.1", "requirements"), day="2020-08-15")[0].minor == "2.3"
    assert choose(TAPE, said(">=2.4", "requirements"), day="2020-08-15")[0].minor == "2.4"


def test_declaration_wins_over_other_statements(choose: Choose) -> None:
    statements = [said("==1.14", "requirements"), said("==1.13", "Dockerfile"), said("==1.12")]
    image, decisions = choose(SESSION, *reversed(statements))
    assert image.minor == "1.14"
    assert [note.split(" ")[0] for note in decisions[0].against] == [
        "Dockerfile:3",
        "README.md:3",
    ]


def test_bound_of_declaration_filters_prose(choose: Choose) -> None:
    statements = [said("==1.4"), said("==1.13", "CI"), said(">=1.12", "requirements")]
    assert choose(SESSION, *statements)[0].minor == "1.13"


def test_statement_of_other_program_comes_last(choose: Choose) -> None:
    other = said("==1.14", "requirements", is_near=False)
    assert choose(SESSION, other, said("==1.12"))[0].minor == "1.12"
    assert choose(SESSION, other)[0].minor == "1.14"


def test_statement_implied_by_keras_comes_last(choose: Choose) -> None:
    implied = said("==2.3", "requirements", is_implied=True)
    assert choose(TAPE, implied, said("==2.1"))[0].minor == "2.1"


def test_statement_of_bot_is_reported_alone(choose: Choose) -> None:
    bot = said("==1.15.2", "requirements", by_bot=True)
    image, decisions = choose(SESSION, said("==1.11", "requirements"), bot)
    assert image.minor == "1.11"
    assert "bot" in decisions[0].against[0]


def test_statement_outside_family_is_reported(choose: Choose) -> None:
    image, decisions = choose(CONTRIB, said("==2.9.1", "requirements"), said("==1.12"))
    assert image.minor == "1.12"
    (note,) = decisions[0].against
    assert "requirements.txt:3" in note
    assert "train.py:5 uses tf.contrib" in note


def test_pin_newer_than_the_code_is_not_followed(choose: Choose) -> None:
    moved = said("==2.4.0", "requirements")
    image, decisions = choose(TAPE, moved, said("==2.1"), day="2020-02-23")
    assert image.minor == "2.1"
    assert "2020-02-23" in decisions[0].against[0]
    assert choose(TAPE, said("==2.2", "requirements"), day="2020-04-01")[0].minor == "2.2"
    assert choose(TAPE, said("==2.0.0rc0", "requirements"), day="2019-09-20")[0].minor == "2.0"


@pytest.mark.parametrize("sign", ["contrib", "eager1"])
def test_guarded_sign_of_tensorflow_1_decides_nothing(choose: Choose, sign: str) -> None:
    code = source("train.py", **{sign: 1, "guards0": 1, "tape": 2, "tf_keras": 5})
    assert choose(code, said("==2.3"))[0].minor == "2.3"


def test_optional_import_of_contrib_decides_nothing(choose: Choose) -> None:
    optional = Import("tensorflow.contrib.graph_editor", 0, ("x",), 5, "optional")
    code = SourceFacts("a.py", (optional,), tensorflow={"contrib": (5,), "compat.v1": (9,)})
    assert choose(code, said("==2.3"))[0].minor == "2.3"


def test_marker_applies_to_python_of_the_image(choose: Choose) -> None:
    narrow = said("<2.14,>=2.5", "requirements", marker='python_version >= "3.11"')
    assert choose(TAPE, narrow, day="2024-09-01")[0].minor == "2.13"
    old = said("==2.2", "requirements", marker='python_version >= "3.8"')
    assert choose(TAPE, old, said("==2.5"), day="2022-09-01")[0].minor == "2.5"
    mac = said("==2.9", "requirements", marker='sys_platform == "darwin"')
    assert choose(TAPE, mac, day="2021-09-01")[0].minor == "2.6"


def test_new_syntax_needs_an_image_with_its_python(choose: Choose) -> None:
    code = SourceFacts("a.py", tensorflow=TAPE.tensorflow, minimum_python="3.8")
    assert choose(code, day="2020-06-01")[0].python_minor == "3.8"
    old = SourceFacts("a.py", tensorflow=SESSION.tensorflow, minimum_python="3.7")
    image, decisions = choose(old, said("==1.12"))
    assert image.minor == "1.12"
    assert decisions[1].against == ("a.py needs Python 3.7 or newer",)


def test_user_overrides_version_and_date(choose: Choose) -> None:
    day = date(2018, 5, 1)
    image, decisions = choose(CONTRIB, said("==1.12"), tensorflow="2.2", date=day, day="2019-01-01")
    assert (image.minor, decisions[2].value) == ("2.2", "2018-05-01")
    assert len(decisions[0].against) == 2
    assert choose(CONTRIB, said("==1.12"), tensorflow="1.14.0")[0].minor == "1.14"
    assert choose(KERAS2, tensorflow="1")[0].minor == "1.15"


@pytest.mark.parametrize("version", ["1.4", "3.1", "9", "2.x", "1.99999999999"])
def test_user_version_without_image_is_refused(choose: Choose, version: str) -> None:
    with pytest.raises(InputError) as refusal:
        choose(SESSION, tensorflow=version)
    assert refusal.value.kind == "no-image"
    assert refusal.value.exit_code == 2
    assert "1.10" in str(refusal.value)


def test_gpu_image_on_request(choose: Choose) -> None:
    assert choose(SESSION, said("==1.12"))[0].name == "tf-1.12-cpu-debian"
    assert choose(SESSION, said("==1.12"), gpu=True)[0].name == "tf-1.12-gpu-ubuntu"
    image, decisions = choose(TAPE, said("==2.4"), gpu=True)
    assert image.name == "tf-2.5-gpu-debian"
    assert "2.5 is the nearest image" in decisions[0].reason


@pytest.mark.parametrize(
    ("day", "expected"),
    [("2027-01-01", str(TODAY)), ("1970-01-01", ""), ("2019-05-05", "2019-05-05")],
)
def test_impossible_dates_are_not_used(choose: Choose, day: str, expected: str) -> None:
    _, (_, _, dated) = choose(SESSION, day=day)
    assert dated.value == expected


def test_program_without_tensorflow_uses_all_files(matrix: Matrix) -> None:
    program, model = SourceFacts("run.py"), source("model.py", contrib=1)
    known = {"run.py": program, "model.py": model}
    image, _ = choose_image(closure(program), known, (), History(), matrix, today=TODAY)
    assert image.minor == "1.15"


def test_decisions_say_where_and_why(choose: Choose) -> None:
    readme = Statement("README", "==1.8", Evidence("README.md", 14), words="TensorFlow 1.8")
    _, (decision, _, dated) = choose(source(contrib=1), readme, day="2018-06-03")
    assert decision.value == "1.10"
    assert decision.reason == (
        'train.py:5 uses tf.contrib; README.md:14 says "TensorFlow 1.8", and 1.10 is the nearest '
        "image"
    )
    assert dated.value == "2018-06-03"


@pytest.mark.parametrize(
    ("code", "statement", "image"),
    [
        (TAPE, "==2.15.0", "tf-2.15-cpu-debian-arm64"),
        (TAPE, "==2.9.0", "tf-2.9-cpu-debian-arm64"),
        (TAPE, "==2.4", "tf-2.7-cpu-debian-arm64"),
    ],
)
def test_image_for_arm64_is_the_nearest(
    choose: Choose, code: SourceFacts, statement: str, image: str
) -> None:
    said = Statement("requirements", statement, Evidence("requirements.txt", 1))
    usual, _ = choose(code, said)
    chosen, (decision, python, _) = choose(code, said, architecture="arm64")
    assert (chosen.name, chosen.minor) == (image, decision.value)
    assert python.value == chosen.python_minor
    is_other = usual.minor != chosen.minor
    assert ("the nearest image for linux/arm64" in decision.reason) == is_other


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"tensorflow": "2.4"}, r"No image for linux/arm64 has TensorFlow 2\.4 .*have .* 2\.7, 2"),
        ({"tensorflow": "1"}, "No image for linux/arm64 has TensorFlow 1"),
        ({"gpu": True}, "--gpu: .* no CUDA"),
    ],
)
def test_what_arm64_has_not_is_refused(
    choose: Choose, options: dict[str, object], reason: str
) -> None:
    with pytest.raises(InputError, match=reason) as refusal:
        choose(TAPE, architecture="arm64", **options)
    assert refusal.value.kind == "no-image"


def test_release_days_cover_the_matrix(matrix: Matrix) -> None:
    minors = {".".join(row.tensorflow.split(".")[:2]) for row in matrix.images}
    assert minors <= set(RELEASE_DAYS)


def refused(tmp_path: Path, *sources: SourceFacts, entry: SourceFacts | None = None) -> str:
    """Return the kind of the refusal, or an empty text."""
    known = {item.path: item for item in sources}
    try:
        refuse_unsupported(open_repository(tmp_path), closure(entry) if entry else None, known)
    except InputError as error:
        return error.kind
    return ""


def test_python_2_is_refused_by_share(tmp_path: Path) -> None:
    (tmp_path / "old.py").write_text("import tensorflow as tf\nprint 1\n")
    old, new = SourceFacts("old.py", python2=2), [source(f"{i}.py") for i in range(5)]
    assert refused(tmp_path, old, *new[:4]) == "python2"
    assert refused(tmp_path, old, *new, entry=new[0]) == ""
    assert refused(tmp_path, old, *new, entry=old) == "python2"


def test_python_2_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "old.py").write_text('import tensorflow\nprint "epoch", x\n')
    old = SourceFacts("old.py", python2=2)
    with pytest.raises(InputError, match=r'old\.py:2  print "epoch", x') as refusal:
        refuse_unsupported(open_repository(tmp_path), None, {"old.py": old})
    assert "2to3" in str(refusal.value)


def test_other_frameworks_are_refused_by_name(tmp_path: Path) -> None:
    torch = SourceFacts("net.py", imports=(Import("torch.nn", 0, (), 4, "required"),))
    with pytest.raises(InputError, match=r"PyTorch \(net\.py:4\)") as refusal:
        refuse_unsupported(open_repository(tmp_path), None, {"net.py": torch})
    assert refusal.value.kind == "no-tensorflow"
    assert refused(tmp_path) == "no-tensorflow"


@pytest.mark.parametrize(("module", "kind"), [("torch.nn", "no-tensorflow"), ("sklearn", "")])
def test_program_of_other_framework(tmp_path: Path, module: str, kind: str) -> None:
    code = SourceFacts("net.py", imports=(Import(module, 0, (), 4, "required"),))
    assert refused(tmp_path, code, source("a.py"), entry=code) == kind


def test_keras_with_theano_is_refused(tmp_path: Path) -> None:
    keras = Import("keras.models", 0, (), 2, "required")
    theano = Import("theano.tensor", 0, (), 3, "required")
    code = SourceFacts("net.py", imports=(keras, theano))
    assert refused(tmp_path, code) == "no-tensorflow"
    assert refused(tmp_path, replace(code, imports=(keras,))) == ""
    assert refused(tmp_path, replace(code, imports=(keras, theano._replace(kind="wanted")))) == ""
    assert refused(tmp_path, code, source("b.py")) == ""


@pytest.mark.parametrize("module", ["tensorflow_hub", "tflearn", "keras.models"])
def test_wrappers_of_tensorflow_are_accepted(tmp_path: Path, module: str) -> None:
    code = SourceFacts("net.py", imports=(Import(module, 0, (), 4, "required"),))
    assert refused(tmp_path, code) == ""


def test_tensorflow_0_leftovers_are_accepted(tmp_path: Path) -> None:
    leftover = replace(source(removed0=9), removed_names=("histogram_summary",))
    newer = SourceFacts("a.py", tensorflow={"tensorflow": (1,), "since0.12": (2,)})
    assert refused(tmp_path, leftover) == "tensorflow0"
    assert refused(tmp_path, leftover, newer) == ""
    order = replace(leftover, removed_names=("concat",))  # 0.12 has the new spellings
    assert refused(tmp_path, order, newer) == "tensorflow0"


def test_choice_takes_the_newest_of_a_ci_file(choose: Choose) -> None:
    tested = [said(f"=={minor}.*", "CI") for minor in ("2.2", "2.4", "2.3")]
    assert choose(TAPE, *tested, day="2022-01-05")[0].minor == "2.4"
    other = tested[1]._replace(evidence=Evidence("tox.ini", 3))
    assert choose(TAPE, tested[0], other, day="2022-01-05")[0].minor == "2.2"


def test_choice_obeys_checks_of_the_code(choose: Choose) -> None:
    check = Statement("check", ">=1.12.0", Evidence("utils.py", 4))
    _, (decision, *_) = choose(CONTRIB, check, said("==1.4"), day="2019-01-05")
    assert decision.value == "1.12"
    assert "utils.py:4" in decision.reason
    assert any("README.md:3" in note for note in decision.against)


def test_tensorflow_0_is_refused_without_guards(tmp_path: Path) -> None:
    assert refused(tmp_path, source(removed0=3)) == "tensorflow0"
    assert refused(tmp_path, source(removed0=2)) == ""
    assert refused(tmp_path, source(removed0=9, guards0=1)) == ""
    assert refused(tmp_path, source(removed0=4, since1=9)) == ""
    assert (
        refused(tmp_path, source("old.py", removed0=5), source("a.py"), entry=source("a.py")) == ""
    )
