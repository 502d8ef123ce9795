"""Tell a program that stops for data or arguments from a program that fails.

The facts of an exception are from the image, so they are hostile input: every value is checked.
"""

import errno
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

#: The most characters of a text that is searched or shown.
_LONGEST = 2000


class Frame(NamedTuple):
    """A frame of a traceback, with the text of its line."""

    path: str
    line: int
    function: str
    source: str = ""


class Failure(NamedTuple):
    """An exception that ended a program: its classes, the nearest first; its frames, outer first.

    ``causes`` are the texts of the exceptions that led to it.
    """

    classes: tuple[str, ...]
    message: str
    frames: tuple[Frame, ...] = ()
    module: str = ""
    filename: str = ""
    number: int = 0
    code: int | str | None = None
    causes: tuple[tuple[str, str], ...] = ()

    @property
    def line(self) -> str:
        """The exception's line in Python's traceback, as one line.

        TensorFlow 1.x adds where the operation was created, and the traceback of a library that it
        cannot load.
        """
        name = self.classes[0] if self.classes else ""
        if cause := parse_traceback(self.message):
            return cause.line
        text = " ".join(_OPERATION.split(self.message, maxsplit=1)[0].split())[:300]
        return f"{name}: {text}" if text else name


@dataclass(frozen=True)
class Start:
    """The progress of a program until its end or its time limit.

    - ``outcome``: finished, running (at the time limit), stops (for data or arguments) or fails
    - ``reason``: of one that stops: data, arguments, input, network or gpu. Of one that fails:
      missing module, missing library, missing program, binary mismatch, renamed attribute,
      undefined name, syntax, memory, disk, display, crash, imports not finished, or other
    - ``asked``: the file, argument or address that a program stops for
    - ``missing``: the missing module, library or program, as the reason says
    - ``line``: the last line of its error
    - ``place``: the file and line of the repository at which it ended, if known
    - ``folder``: the folder of the repository that it ran in; empty text: the repository
    - ``cause``: the line of the exception that led to the error
    - ``source``: the line of code at ``place``
    - ``package``: the package whose code raised the error, if it was not the repository's
    - ``not_copied``: files of the repository that it did not have, and why
    """

    outcome: Literal["finished", "running", "stops", "fails"]
    reason: str = ""
    asked: str = ""
    missing: str = ""
    line: str = ""
    place: str = ""
    seconds: float = 0.0
    folder: str = ""
    not_copied: tuple[str, ...] = ()
    cause: str = ""
    source: str = ""
    package: str = ""


def read_failure(report: Mapping[str, Any]) -> Failure:
    """Return the exception of a report of `run_entry`, without the values of a wrong type."""
    frames = [_read_frame(frame) for frame in _items(report.get("frames"))]
    causes = [
        (_text(cause[0]), _text(cause[1]))
        for cause in _items(report.get("causes"))
        if isinstance(cause, list) and len(cause) == 2
    ]
    code, number = report.get("code"), report.get("errno")
    return Failure(
        classes=tuple(_text(name) for name in _items(report.get("classes"))),
        message=_text(report.get("message")),
        frames=tuple(frame for frame in frames if frame),
        module=_text(report.get("module")),
        filename=_text(report.get("filename")),
        number=number if isinstance(number, int) else 0,
        code=code if isinstance(code, int | str) else None,
        causes=tuple(causes),
    )


def read_frames(value: object) -> tuple[Frame, ...]:
    """Return the frames of a stack in a report."""
    frames = [_read_frame(frame) for frame in _items(value)]
    return tuple(frame for frame in frames if frame)


def _read_frame(value: object) -> Frame | None:
    if not isinstance(value, list) or len(value) < 3 or not isinstance(value[1], int):
        return None
    source = _text(value[3]) if len(value) > 3 else ""
    return Frame(_text(value[0]), value[1], _text(value[2]), source)


def _items(value: object) -> list[Any]:
    return value[:100] if isinstance(value, list) else []


def _text(value: object) -> str:
    return value[:_LONGEST] if isinstance(value, str) else ""


_OPERATION = re.compile(r"\n?\s\[\[|\nCaused by op ")
_TRACEBACK = "Traceback (most recent call last):"
_FRAME_LINE = re.compile(r'  File "([^"\n]{1,500})", line (\d{1,9})(?:, in (\S{1,200}))?')
_ERROR_LINE = re.compile(r"((?:[A-Za-z_]\w{0,80}\.){0,10})([A-Za-z_]\w{0,80})(?:: (.*))?")


def parse_traceback(text: str) -> Failure | None:
    """Return the exception of the last traceback in a program's errors, if there is one."""
    _, found, rest = text.rpartition(_TRACEBACK)
    if not found:
        return None
    frames: list[Frame] = []
    for line in rest.splitlines()[1:400]:
        if match := _FRAME_LINE.match(line):
            frames.append(Frame(match[1], int(match[2]), match[3] or ""))
        elif line.startswith(" ") and frames:
            frames[-1] = frames[-1]._replace(source=frames[-1].source or line.strip()[:200])
        elif match := _ERROR_LINE.fullmatch(line[:_LONGEST]):
            message = match[3] or ""
            bases = _KNOWN_BASES.get(match[2], ())
            return Failure((match[2], *bases), message, tuple(frames), match[1][:-1])
    return None


_KNOWN_BASES = {
    "ModuleNotFoundError": ("ImportError",),
    "FileNotFoundError": ("OSError",),
    "NotADirectoryError": ("OSError",),
    "IsADirectoryError": ("OSError",),
    "PermissionError": ("OSError",),
    "ConnectionRefusedError": ("ConnectionError", "OSError"),
    "gaierror": ("OSError",),
    "URLError": ("OSError",),
}
_MODULE = re.compile(r"No module named '?([A-Za-z_][\w.]{0,200})'?")
_LIBRARY = re.compile(
    r"(lib[\w.+-]{1,100}?\.so(?:\.\d{1,9}){0,4}): "
    r"(?:cannot open shared object file|wrong ELF class|file too short)"
)
#: Libraries that packages load by themselves, and the texts of their errors.
_LIBRARY_TEXTS = {
    "sndfile library not found": "libsndfile.so.1",
    "PortAudio library not found": "libportaudio.so.2",
    "Could not find Graphviz": "libgvc.so.6",
}
#: Texts of packages whose compiled parts were built for other releases of NumPy, TensorFlow or
#: libraries.
_MISMATCH = re.compile(
    r"undefined symbol|version `GLIBC|GLIBCXX_|compiled against API version|"
    r"numpy\.\w{1,40} size changed|numpy\.core\.multiarray failed to import|"
    r"numpy\.core\._multiarray_umath|cannot allocate memory in static TLS block"
)
_RENAMED = re.compile(
    r"module '?[\w.]{1,200}'? has no attribute|cannot import name|"
    r"type object '[\w.]{1,200}' has no attribute"
)
_NETWORK = re.compile(
    r"Temporary failure in name resolution|Name or service not known|Network is unreachable|"
    r"Failed to establish a new connection|Could not resolve host|urlopen error|URL fetch failure|"
    r"Max retries exceeded|No address associated with hostname|Connection refused|"
    r"Cannot assign requested address",
    re.IGNORECASE,
)
_NETWORK_CLASSES = {"URLError", "gaierror", "ConnectionError", "MaxRetryError", "HTTPError"}
_ADDRESS = re.compile(r"https?://[^\s'\"<>)\]]{1,300}")
_DISPLAY = re.compile(
    r"no display name|NoSuchDisplay|cannot connect to X|Cannot connect to \"None\"|"
    r"could not connect to display|Qt platform plugin|Unable to open display|"
    r"Rebuild the library with Windows, GTK",
    re.IGNORECASE,
)
_MEMORY = re.compile(
    r"Cannot allocate memory|Unable to allocate|bad_alloc|OOM when allocating", re.IGNORECASE
)
_NO_GPU = re.compile(
    r"Cannot assign a device for operation|no CUDA-capable device|CUDA_ERROR_NO_DEVICE|"
    r"Could not satisfy explicit device specification|nvidia-smi|GPU:0 unknown device"
)
_ARGUMENTS = re.compile(
    r"must (?:be )?(?:supply|specif|supplied|provide|set\b|given|pass)|"
    r"please (?:specify|supply|provide|set|give|enter|pass)|\busage:|"
    r"(?:required|missing|unrecognized|unknown|invalid) (?:\w{1,20} ){0,2}(?:argument|flag|option)|"
    r"arguments? (?:are|is) required|Flag --\w{1,80} must|need to (?:specify|supply|provide|pass)|"
    r"not specified|flags? parsing error|api[_ ]?key",
    re.IGNORECASE,
)
_DATA_PHRASES = re.compile(
    r"no such file|not exist|n't exist|not found|not find|n't find|cannot find|unable to open|"
    r"unable to find|unable to load|failed to open|failed to find|failed to load|can't load|"
    r"cannot load|cannot open|can't open|could not open|is missing|are missing|no files?\b|"
    r"no (?:\w{1,20} )?(?:data|images?|checkpoints?|models?|records?|samples?)\b|"
    r"please (?:download|put|run|train|prepare|generate)|not a (?:valid )?(?:file|director|path)|"
    r"not a directory|is not available|not (?:been )?downloaded|isn't a|is empty|no matching files",
    re.IGNORECASE,
)
_DATA_NOUNS = re.compile(
    r"data|file|dir(?:ector|s?\b)|folder|path|weight|checkpoint|ckpt|model|pretrain|image|record|vocab|"
    r"corpus|embedding|resource|\.(?:txt|json|csv|npy|npz|pkl|h5|hdf5|pb|mat|zip|yml|yaml)\b|/",
    re.IGNORECASE,
)
#: The same in texts of packages, which also describe faults of code.
_FILE_PHRASES = re.compile(
    r"no such file|does not exist|do not exist|doesn't exist|unable to open|failed to open|"
    r"failed to find|cannot open|can't open|could not open|can't load|no matching files|"
    r"was not found in|resource \w{1,40} not found|\[E050\]|not a directory",
    re.IGNORECASE,
)
#: Texts of errors for a collection of files that is empty, because there is no data.
_EMPTY = re.compile(
    r"need at least one array to concatenate|Cannot choose from an empty sequence|"
    r"with 0 sample|n_samples=0|num_samples should be a positive|save_path when it is None|"
    r"!_src\.empty\(\)|!ssize\.empty\(\)|max\(\) arg is an empty sequence"
)
#: TensorFlow's text for an array without names of files, which NumPy gives the type float.
_NO_NAMES = "Input 'filename' of 'ReadFile' Op has type float"
_EXISTENCE = re.compile(r"\b(?:exists|isdir|isfile|is_dir|is_file|Exists|IsDirectory)\(")
#: Exceptions whose texts can ask for something. Others are faults of the code.
_TEXTUAL = {
    *("Exception", "RuntimeError", "ValueError", "AssertionError", "OSError", "IOError"),
    *("SystemExit", "NotFoundError", "LookupError", "UserWarning", "StandardError", "error"),
    *(
        "FailedPreconditionError",
        "InvalidArgumentError",
        "DataLossError",
        "UnparsedFlagAccessError",
    ),
}
_SYSTEM_TEXT = re.compile(r"([^;\n]{1,300}); (?:No such file|Not a directory|Is a directory|Perm)")
_QUOTED = re.compile(r"['\"`]([^'\"`\n]{1,300})['\"`]")
_PATH = re.compile(r"(?:^|[\s:=(])((?:[\w.~-]{1,100})?/[\w./~-]{1,300}|[\w-]{1,100}\.\w{2,5}\b)")
#: Parts of the paths of modules that parse arguments, and the classes of their exceptions.
_PARSERS = ("/argparse.py", "/optparse.py", "/docopt.py", "/click/", "/absl/", "/platform/app.py")
_ARGUMENT_CLASSES = {
    *("GetoptError", "UsageError", "MissingParameter", "ArgumentError", "CantOpenFlagFileError"),
    *("IllegalFlagValueError", "UnrecognizedFlagError"),
}
#: Errors of the system for a missing file or folder.
_NUMBERS = {errno.ENOENT, errno.EACCES, errno.ENOTDIR, errno.EISDIR, errno.EROFS}
#: Faults of the code or of its surroundings: their reason, classes, and texts if any will not do.
_CODE_FAULTS: tuple[tuple[str, set[str], re.Pattern[str] | None], ...] = (
    ("syntax", {"SyntaxError"}, None),
    ("undefined name", {"NameError"}, None),
    ("memory", {"MemoryError", "ResourceExhaustedError"}, None),
    ("crash", {"KernelDiedError"}, None),
    ("memory", {"Exception"}, _MEMORY),
    ("display", {"NoSuchDisplayException"}, None),
    ("display", {"Exception"}, _DISPLAY),
    ("renamed attribute", {"AttributeError", "ImportError"}, _RENAMED),
)
#: Parts of the paths of packages and of Python's own modules.
_OF_PACKAGES = ("/site-packages/", "/dist-packages/", "/lib/python")
#: Folders of the image, whose files no repository has.
_OF_IMAGE = ("/opt/", "/usr/", "/lib/", "/etc/", "/proc/", "/sys/", "/dev/")


def judge_failure(failure: Failure) -> Start:
    """Return why a program ended: the answer of the first rule that knows its exception."""
    for rule in _RULES:
        if verdict := rule(failure):
            return verdict
    return Start("fails", "other")


def _find_library(failure: Failure) -> Start | None:
    for _, text in _texts(failure):
        if match := _LIBRARY.search(text):
            if match[1].startswith("libcuda.so"):
                return Start("stops", "gpu", match[1])
            return Start("fails", "missing library", missing=match[1])
        for phrase, library in _LIBRARY_TEXTS.items():
            if phrase in text:
                return Start("fails", "missing library", missing=library)
    return None


def _find_module(failure: Failure) -> Start | None:
    """Return the missing module, also of an exception that repeats Python's in other words."""
    is_import = "ImportError" in failure.classes
    for kind, text in _texts(failure):
        match = _MODULE.search(text)
        if match and (is_import or kind in {"ImportError", "ModuleNotFoundError"}):
            module = match[1].rstrip(".")
            return Start("fails", "missing module", missing=module)
    match = _MODULE.search(failure.message)
    if match:
        return Start("fails", "missing module", missing=match[1].rstrip("."))
    return None


def _find_program(failure: Failure) -> Start | None:
    """Return the missing program of a `subprocess`, which has no folder in its name."""
    functions = {frame.function for frame in failure.frames}
    name = failure.filename
    if "_execute_child" in functions and "OSError" in failure.classes and name:
        return Start("fails", "missing program", name, missing=name.rpartition("/")[2])
    if failure.classes[:1] == ("ExecutableNotFound",) or '"dot" not found in path' in (
        failure.message
    ):
        return Start("fails", "missing program", "dot", missing="dot")
    if "Could not find ffmpeg" in failure.message or failure.classes[:1] == ("NoBackendError",):
        return Start("fails", "missing program", "ffmpeg", missing="ffmpeg")
    return None


def _find_mismatch(failure: Failure) -> Start | None:
    for _, text in _texts(failure):
        if _MISMATCH.search(text):
            return Start("fails", "binary mismatch")
    return None


def _find_code_fault(failure: Failure) -> Start | None:
    """Return the class of a fault of the code, or of an interface that changed."""
    classes = {*failure.classes}
    for reason, names, pattern in _CODE_FAULTS:
        if classes & names and (pattern is None or pattern.search(failure.message)):
            return Start("fails", reason)
    return None


def _find_usage(failure: Failure) -> Start | None:
    """Tell whether a parser of arguments ended the program; its request is in the output."""
    classes = {*failure.classes}
    if "SystemExit" not in classes:
        return None
    paths = [frame.path for frame in failure.frames[-4:]]
    parsed = any(part in path for path in paths for part in _PARSERS)
    if classes & {"FireExit", "DocoptExit"} or (failure.code in {1, 2} and parsed):
        return Start("stops", "arguments")
    return None


def _find_arguments(failure: Failure) -> Start | None:
    """Return the arguments, input or variable that the program asks for."""
    classes = {*failure.classes}
    last = failure.frames[-1] if failure.frames else Frame("", 0, "")
    reads = "EOFError" in classes and "reading a line" in failure.message
    if reads or "StdinNotImplementedError" in classes:  # the latter is a notebook's
        return Start("stops", "input", failure.line)
    if "KeyError" in classes and last.path.endswith("/os.py"):
        return Start("stops", "arguments", f"variable {failure.message}")
    # IPython's class of this name is an unknown magic.
    if classes & _ARGUMENT_CLASSES and failure.module != "IPython.core.error":
        return Start("stops", "arguments", failure.line)
    if "sys.argv" in last.source and classes & {"IndexError", "ValueError", "AssertionError"}:
        return Start("stops", "arguments", last.source)
    return None


def _find_network(failure: Failure) -> Start | None:
    for kind, text in _texts(failure):
        if kind in _NETWORK_CLASSES or _NETWORK.search(text):
            texts = [text for _, text in _texts(failure)]
            return Start("stops", "network", _find_address(" ".join(texts)) or failure.line)
    if {*failure.classes} & _NETWORK_CLASSES:
        return Start("stops", "network", failure.line)
    return None


def _find_gpu(failure: Failure) -> Start | None:
    if _NO_GPU.search(failure.message):
        return Start("stops", "gpu", failure.line)
    return None


def _find_missing_file(failure: Failure) -> Start | None:
    """Return the file that the system does not have, or may not write."""
    classes = {*failure.classes}
    missing = {"FileNotFoundError", "NotADirectoryError", "PermissionError", "IsADirectoryError"}
    if not (classes & missing or ("OSError" in classes and failure.number in _NUMBERS)):
        return None
    asked = failure.filename or _find_path(failure.message)
    if asked.startswith(_OF_IMAGE) and "PermissionError" not in classes:
        return None
    return Start("stops", "data", asked or failure.line)


def _find_limit(failure: Failure) -> Start | None:
    """Tell whether the program wrote a file that is larger than adopt allows in a trial."""
    if failure.number == errno.EFBIG or "File too large" in failure.message:
        return Start("fails", "disk")
    return None


def _find_empty_list(failure: Failure) -> Start | None:
    """Tell whether the program has a list of files that is empty, because there is no data."""
    return Start("stops", "data", failure.line) if _NO_NAMES in failure.message else None


def _find_request(failure: Failure) -> Start | None:
    """Return the data or arguments that the text of an exception asks for."""
    classes = {*failure.classes[:1]}
    last = failure.frames[-1] if failure.frames else Frame("", 0, "")
    if "AssertionError" in classes and not failure.message and _EXISTENCE.search(last.source):
        return Start("stops", "data", last.source)
    bases = {"OSError", "LookupError"} & {*failure.classes[1:]}
    is_own = not any(part in last.path for part in _OF_PACKAGES)
    if is_own and any(name == "FileNotFoundError" for name, _ in failure.causes):
        return Start("stops", "data", _find_path(failure.message) or failure.line)
    if not (classes & _TEXTUAL or bases or failure.module == "__main__"):
        return None
    text = failure.message
    if is_own:
        return judge_text(text)
    if _EMPTY.search(text) or (_FILE_PHRASES.search(text) and _DATA_NOUNS.search(text)):
        return Start("stops", "data", _find_path(text) or _one_line(text))
    return None


def judge_text(text: str) -> Start | None:
    """Return the arguments, data or address that a program's own message asks for."""
    text = text[:_LONGEST]
    if _NETWORK.search(text):
        return Start("stops", "network", _find_address(text) or _one_line(text))
    if _ARGUMENTS.search(text):
        return Start("stops", "arguments", _one_line(text))
    if _EMPTY.search(text) or (_DATA_PHRASES.search(text) and _DATA_NOUNS.search(text)):
        return Start("stops", "data", _find_path(text) or _one_line(text))
    return None


def _find_address(text: str) -> str:
    match = _ADDRESS.search(text)
    return match[0].rstrip(".,:;") if match else ""


def _find_path(text: str) -> str:
    """Return the first path or file in a text. TensorFlow's begin with it."""
    if match := _SYSTEM_TEXT.match(text):
        return match[1]
    quoted = [match for match in _QUOTED.findall(text) if "/" in match or "." in match]
    if quoted and " " not in quoted[0].strip():
        return str(quoted[0]).strip()
    match = _PATH.search(text)
    return match[1].rstrip(".") if match else ""


def _one_line(text: str) -> str:
    return " ".join(text.split())[:300]


def _texts(failure: Failure) -> Iterator[tuple[str, str]]:
    """Yield class and text of the exception, then of those that led to it."""
    yield (failure.classes[0] if failure.classes else "", failure.message)
    yield from failure.causes


_RULES: Sequence[Callable[[Failure], Start | None]] = (
    _find_library,
    _find_module,
    _find_mismatch,
    _find_program,
    _find_gpu,
    _find_usage,
    _find_arguments,
    _find_network,
    _find_missing_file,
    _find_code_fault,
    _find_limit,
    _find_empty_list,
    _find_request,
)
