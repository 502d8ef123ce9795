"""Why a program ended, by its exception or its output."""

import time

import pytest

from imgbuild.adopt.failures import (
    Failure,
    Frame,
    Start,
    judge_failure,
    judge_text,
    parse_traceback,
    read_failure,
)
from imgbuild.adopt.program_container import WORK

SITE = "/opt/python/lib/python3.6/site-packages"


def failure(line: str, *frames: Frame, **facts: object) -> Failure:
    """Return a failure by the line of its traceback."""
    names, _, message = line.partition(": ")
    classes = tuple(names.split("/"))
    return Failure(classes, message, frames, **facts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("line", "reason", "missing"),
    [
        ("ModuleNotFoundError/ImportError: No module named 'tqdm'", "missing module", "tqdm"),
        ("ImportError: No module named yaml", "missing module", "yaml"),
        ("ModuleNotFoundError/ImportError: No module named 'a.b_c'", "missing module", "a.b_c"),
        (
            "DependencyNotInstalled/Error: No module named 'atari_py'. (HINT: install it)",
            "missing module",
            "atari_py",
        ),
        (
            "ImportError: libGL.so.1: cannot open shared object file: No such file or directory",
            "missing library",
            "libGL.so.1",
        ),
        (
            "OSError: libgthread-2.0.so.0: cannot open shared object file: No such file",
            "missing library",
            "libgthread-2.0.so.0",
        ),
        ("OSError: sndfile library not found", "missing library", "libsndfile.so.1"),
        ("OSError: PortAudio library not found", "missing library", "libportaudio.so.2"),
        ('Exception: "dot" not found in path.', "missing program", "dot"),
    ],
)
def test_missing_parts_have_names(line: str, reason: str, missing: str) -> None:
    verdict = judge_failure(failure(line))
    assert (verdict.outcome, verdict.reason) == ("fails", reason)
    assert verdict.missing == missing


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("AttributeError: module 'scipy.misc' has no attribute 'imread'", "renamed attribute"),
        ("ImportError: cannot import name 'gcd' from 'fractions'", "renamed attribute"),
        ("AttributeError: 'NoneType' object has no attribute 'shape'", "other"),
        ("NameError: name 'xrange' is not defined", "undefined name"),
        ("UnboundLocalError/NameError: local variable 'x'", "undefined name"),
        ("SyntaxError: invalid syntax", "syntax"),
        ("TabError/IndentationError/SyntaxError: inconsistent use", "syntax"),
        ("MemoryError: ", "memory"),
        ("ResourceExhaustedError/OpError: OOM when allocating tensor", "memory"),
        ("TclError/Exception: no display name and no $DISPLAY", "display"),
        ("ImportError: /a/b.so: undefined symbol: _ZN10tensorflow", "binary mismatch"),
        ("ValueError: numpy.ufunc size changed, may indicate", "binary mismatch"),
        ("NotFoundError/OpError: /a/ops.so: undefined symbol: _ZTI", "binary mismatch"),
        ("TypeError: unsupported operand type(s)", "other"),
        ("KeyError: 'weights'", "other"),
        ("ValueError: Shapes (3,) and (4,) are incompatible", "other"),
        ("IndexError: list index out of range", "other"),
        ("AssertionError: ", "other"),
    ],
)
def test_faults_have_a_class(line: str, reason: str) -> None:
    verdict = judge_failure(failure(line))
    assert (verdict.outcome, verdict.reason) == ("fails", reason)


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        ("NotFoundError/OpError: data/x.tfrecord; No such file or directory", "data/x.tfrecord"),
        (
            "NotFoundError/OpError: Failed to find any matching files for ./model/last.ckpt",
            "./model/last.ckpt",
        ),
        ("OSError: Unable to open file (name = 'weights.h5', errno = 2)", "weights.h5"),
        ("OSError: SavedModel file does not exist at: saved/1", "saved/1"),
        ("ValueError: Dataset not found in data/train. Download it first", "data/train"),
        ("RuntimeError: Please download the pretrained weights", ""),
        ("ValueError: Can't load save_path when it is None.", ""),
        ("error/Exception: (-215:Assertion failed) !_src.empty() in function 'cvtColor'", ""),
        ("ValueError: need at least one array to concatenate", ""),
        ("Exception: No images found", ""),
        ("FileNotFoundError/OSError: [Errno 2] No such file or directory: 'a.txt'", "a.txt"),
        ("LookupError: Resource punkt not found.", ""),
    ],
)
def test_missing_data_stops_a_program(line: str, asked: str) -> None:
    verdict = judge_failure(failure(line))
    assert (verdict.outcome, verdict.reason) == ("stops", "data")
    assert asked in verdict.asked


@pytest.mark.parametrize(
    ("line", "outcome"),
    [
        ("ValueError: The argument data must be specified", "fails"),
        ("ValueError: No such layer: conv. Not found in model", "fails"),
        ("UnparsedFlagAccessError/Error: Trying to access flag --data before parsing", "fails"),
        ("DuplicateFlagError/Error: The flag 'data' is defined twice", "fails"),
        ("OSError: SavedModel file does not exist at: saved/1", "stops"),
        ("LookupError: Resource punkt not found.", "stops"),
    ],
)
def test_texts_of_packages_are_read_strictly(line: str, outcome: str) -> None:
    """A package that refuses its arguments is no program that asks for some."""
    frame = Frame(f"{SITE}/package/part.py", 1, "f")
    assert judge_failure(failure(line, frame)).outcome == outcome


def test_system_errors_name_their_file() -> None:
    line = "FileNotFoundError/OSError/Exception: [Errno 2] No such file or directory: 'a b.txt'"
    verdict = judge_failure(failure(line, filename="a b.txt", number=2))
    assert (verdict.outcome, verdict.asked) == ("stops", "a b.txt")
    of_image = judge_failure(failure(line, filename="/opt/python/lib/x.json", number=2))
    assert of_image.asked != "/opt/python/lib/x.json" or of_image.outcome == "fails"
    denied = failure("PermissionError/OSError: no", filename="/data", number=13)
    assert judge_failure(denied).asked == "/data"


def test_missing_program_is_no_missing_data() -> None:
    frame = Frame("/usr/lib/python3/subprocess.py", 1, "_execute_child")
    line = "FileNotFoundError/OSError: [Errno 2] No such file or directory: 'ffmpeg'"
    verdict = judge_failure(failure(line, frame, filename="ffmpeg", number=2))
    assert (verdict.reason, verdict.missing) == ("missing program", "ffmpeg")


@pytest.mark.parametrize(
    "line",
    [
        "IllegalFlagValueError/Error: flag --data=None: Flag --data must have a value",
        "ValueError: You must supply the dataset directory with --dataset_dir",
        "AssertionError: Please specify --checkpoint",
        "EOFError: EOF when reading a line",
        "StdinNotImplementedError/NotImplementedError: raw_input was called",
        "GetoptError/Exception: option -x requires argument",
    ],
)
def test_arguments_stop_a_program(line: str) -> None:
    verdict = judge_failure(failure(line))
    assert verdict.outcome == "stops"
    assert verdict.reason in {"arguments", "input"}
    assert verdict.asked


def test_argv_out_of_range_asks_for_arguments() -> None:
    line = "IndexError: list index out of range"
    own = Frame(f"{WORK}/a.py", 3, "main", "path = sys.argv[1]")
    verdict = judge_failure(failure(line, own))
    assert (verdict.outcome, verdict.asked) == ("stops", "path = sys.argv[1]")
    later = judge_failure(failure(line, own, Frame(f"{WORK}/b.py", 3, "f", "x[1]")))
    assert later.outcome == "fails"


@pytest.mark.parametrize("parser", ["/usr/lib/python3/argparse.py", f"{SITE}/absl/app.py"])
def test_usage_stops_a_program(parser: str) -> None:
    frames = (Frame(f"{WORK}/a.py", 1, "main"), Frame(parser, 9, "error"))
    verdict = judge_failure(failure("SystemExit: 2", *frames, code=2))
    assert (verdict.outcome, verdict.reason) == ("stops", "arguments")
    other = judge_failure(failure("SystemExit: 2", frames[0], code=2))
    assert (other.outcome, other.reason) == ("fails", "other")


def test_environment_variable_is_an_argument() -> None:
    frame = Frame("/opt/python/lib/python3.6/os.py", 669, "__getitem__")
    verdict = judge_failure(failure("KeyError: 'DATA_DIR'", frame))
    assert (verdict.reason, verdict.asked) == ("arguments", "variable 'DATA_DIR'")


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        (
            "Exception: URL fetch failure on https://host.test/a.npz: None -- [Errno -3]",
            "https://host.test/a.npz",
        ),
        ("URLError/OSError: <urlopen error [Errno -3] Temporary failure>", "URLError"),
        ("gaierror/OSError: [Errno -2] Name or service not known", "gaierror"),
        ("ConnectionError/RequestException: HTTPSConnectionPool: Max retries", "Max"),
    ],
)
def test_missing_network_stops_a_program(line: str, asked: str) -> None:
    verdict = judge_failure(failure(line))
    assert (verdict.outcome, verdict.reason) == ("stops", "network")
    assert asked in verdict.asked


def test_missing_gpu_stops_a_program() -> None:
    line = "InvalidArgumentError/OpError: Cannot assign a device for operation 'a'"
    assert judge_failure(failure(line)).reason == "gpu"
    line = "ImportError: libcuda.so.1: cannot open shared object file: No such file"
    assert judge_failure(failure(line)).reason == "gpu"


def test_causes_tell_what_an_exception_hides() -> None:
    cause = ("ModuleNotFoundError", "No module named 'Box2D'")
    verdict = judge_failure(failure("Error/Exception: cannot make it", causes=(cause,)))
    assert verdict.missing == "Box2D"


TRACEBACK = f"""\
before
Traceback (most recent call last):
  File "main.py", line 3, in <module>
    work()
  File "{WORK}/part.py", line 7, in work
    import pandas
ModuleNotFoundError: No module named 'pandas'
after
"""


def test_line_is_the_errors_own() -> None:
    """TensorFlow adds operations, and the traceback of a library."""
    text = 'NotFoundError/OpError: a.txt; No such file or directory\n\t [[Node: Read = "/x/y"]]'
    read = failure(text)
    assert read.line == "NotFoundError: a.txt; No such file or directory"
    assert judge_failure(read).asked == "a.txt"
    assert failure(f"ImportError: {TRACEBACK}").line.endswith("No module named 'pandas'")


def test_parse_traceback_reads_the_last() -> None:
    read = parse_traceback(f"{TRACEBACK.replace('pandas', 'other')}\n{TRACEBACK}")
    assert read
    assert read.frames[-1] == Frame(f"{WORK}/part.py", 7, "work", "import pandas")
    assert judge_failure(read).missing == "pandas"
    assert parse_traceback("no traceback") is None
    assert parse_traceback("Traceback (most recent call last):\n  File") is None


@pytest.mark.parametrize(
    "report",
    [
        {},
        {"frames": 7, "classes": "x", "message": [], "causes": {"a": 1}, "code": [], "errno": "x"},
        {"frames": [[], 1, ["a", "b", "c"], [1, 2, 3], [None]], "causes": [1, [1, 2], ["a"]]},
        {"classes": [1, None, {}], "message": "x" * 100_000, "name": {}, "filename": 3},
    ],
)
def test_read_failure_accepts_any_report(report: dict[str, object]) -> None:
    read = read_failure(report)
    judge_failure(read)
    assert len(read.message) <= 2000
    assert all(isinstance(name, str) for name in read.classes)


@pytest.mark.parametrize("text", ["a" * 5000, "/" * 5000, "no " * 2000, "'" * 5000, "a.b" * 2000])
def test_texts_are_searched_in_linear_time(text: str) -> None:
    begin = time.monotonic()
    judge_text(text)
    judge_failure(failure(f"ValueError/ImportError/Exception: {text}"))
    parse_traceback(f"Traceback (most recent call last):\n{text}")
    assert time.monotonic() - begin < 1


def test_judge_text_knows_printed_requests() -> None:
    asked = judge_text("usage: main.py CONFIG")
    assert asked
    assert asked.reason == "arguments"
    data = judge_text("Cannot find the dataset in ./data")
    assert data
    assert (data.reason, data.asked) == ("data", "./data")
    assert judge_text("all done") is None


def test_own_exception_for_a_missing_file_stops() -> None:
    cause = ("FileNotFoundError", "[Errno 2] No such file or directory: 'data/words.txt'")
    own = failure("OwnError/Exception: Unable to locate file data/words.txt.", causes=(cause,))
    assert judge_failure(own) == Start("stops", "data", "data/words.txt")
    frames = (Frame(f"{SITE}/package/part.py", 1, "f"),)
    assert judge_failure(own._replace(frames=frames)).outcome == "fails"


def test_missing_folder_by_its_option_stops() -> None:
    own = failure("Exception: input_dir does not exist", Frame(f"{WORK}/main.py", 3, ""))
    verdict = judge_failure(own)
    assert (verdict.outcome, verdict.reason) == ("stops", "data")
    other = failure("Exception: the direction does not exist", Frame(f"{WORK}/main.py", 3, ""))
    assert judge_failure(other).outcome == "fails"


def test_unknown_magic_is_no_request_for_arguments() -> None:
    unknown = "UsageError: Line magic function `%sql` not found."
    assert judge_failure(failure(unknown, module="IPython.core.error")).outcome == "fails"
    assert judge_failure(failure("UsageError: Missing argument")).reason == "arguments"


def test_empty_list_of_files_is_missing_data() -> None:
    line = "TypeError: Input 'filename' of 'ReadFile' Op has type float32 that does not match"
    verdict = judge_failure(failure(line, Frame(f"{WORK}/utils.py", 15, "read")))
    assert (verdict.outcome, verdict.reason) == ("stops", "data")


def test_too_large_file_is_the_limit_of_the_trial() -> None:
    line = "OSError: [Errno 27] File too large"
    verdict = judge_failure(failure(line, Frame(f"{WORK}/train.py", 15, "save"), number=27))
    assert (verdict.outcome, verdict.reason) == ("fails", "disk")
