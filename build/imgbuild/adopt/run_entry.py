"""Run in a container, by its own Python (3.6 and later): run a program, and tell how far it gets.

    supervise MARK SETTINGS   run the program in a child process, within its limits
    run DESCRIPTOR SETTINGS   the child: report to a pipe, whose other end the supervisor reads

The supervisor writes reports to its standard error, which it shares with the program, as JSON in
pieces: the byte 1E, the mark, "+" if more pieces follow or ".", the piece, and the byte 1E. The
mark is random, and the program is not told it, so no output looks like a report by accident.

For a notebook, `run_notebook` is the child.

The program runs as `python FILE` and `python -m MODULE` run it. One call is compiled into it, after
the last import of its module level; it adds no name to the program's module.
"""

import ast
import builtins
import faulthandler
import importlib.util
import json
import linecache
import os
import resource
import select
import signal
import subprocess
import sys
import time
import types
from contextlib import suppress
from importlib.machinery import ModuleSpec, SourceFileLoader
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

Report = Dict[str, Any]

#: The call that is compiled into the program. It is a name of `builtins`.
MARKER = "__imgbuild_imports_done__"
#: Bytes of a piece of a report, so that each piece is one atomic write. Source: pipe(7), PIPE_BUF.
PIECE_BYTES = 2000
#: Limits of a report: characters of a text, frames of a traceback, and bytes that a child may send.
TEXT_LENGTH, FRAMES, CHILD_BYTES = 2000, 40, 1 << 20
#: Bytes of any file that the program writes, and of all of them together.
LARGEST_FILE, MOST_BYTES = 1 << 30, 8 << 30
#: Seconds to wait for a stack, and between two looks at a program that still imports.
STACK_SECONDS, RETRY_SECONDS = 3.0, 5.0


def supervise(mark: str, settings_path: str) -> int:
    """Run the program until it ends or reaches its limit; report, and exit with its code."""
    settings = read_settings(settings_path)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    largest = LARGEST_FILE if hard == resource.RLIM_INFINITY else min(LARGEST_FILE, hard)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    begin = time.monotonic()
    child = os.path.join(os.path.dirname(os.path.abspath(__file__)), settings["child"])
    command = [sys.executable, child, "run", str(writing), settings_path]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, pass_fds=(writing,), cwd=settings["folder"]
    )
    os.close(writing)
    try:
        watch(process, reading, mark, settings, begin)
    finally:
        if process.poll() is None:
            process.kill()
    code = process.wait()
    return code if code >= 0 else 128 - code


def read_settings(path: str) -> Report:
    with open(path, encoding="utf-8") as file:
        settings: Report = json.load(file)
    return settings


def watch(
    process: "subprocess.Popen[bytes]", reading: int, mark: str, settings: Report, begin: float
) -> None:
    """Pass on the child's reports, and report its end, or its stack at the limit of its time.

    A program that fills the engine's disk is stopped, too.
    """
    pipe = _ChildPipe(reading)
    last = begin + settings["import_seconds"]
    limit, done = last, False
    free = free_bytes()
    least = free - min(MOST_BYTES, free // 2)

    def tell(report: Report) -> None:
        emit(mark, dict(report, seconds=round(time.monotonic() - begin, 3)))

    while True:
        for report in pipe.reports(min(0.1, max(0.0, limit - time.monotonic()))):
            if report.get("event") == "imports" and not done:
                done, limit = True, time.monotonic() + settings["seconds"]
            tell(report)
        if process.poll() is not None:
            for report in pipe.reports(0.0):
                tell(report)
            tell({"event": "ended", "code": process.returncode, "stack": pipe.stack()})
            return
        if free_bytes() < least:
            tell({"event": "limit", "written": free - least})
            return
        if time.monotonic() < limit:
            continue
        stack = ask_stack(process, pipe)
        importing = is_importing(stack, settings["code"])
        if importing and time.monotonic() + RETRY_SECONDS < last:
            limit = time.monotonic() + RETRY_SECONDS
            continue
        tell({"event": "limit", "importing": importing, "imports": done, "stack": stack})
        return


def free_bytes() -> int:
    """Return the bytes that the program can still write. Containers share the engine's disk."""
    status = os.statvfs("/")
    return status.f_bavail * status.f_frsize


def emit(mark: str, report: Report) -> None:
    """Write a report to standard error, which has the program's output also."""
    text = json.dumps(report).encode("ascii")
    for at in range(0, len(text), PIECE_BYTES):
        piece = text[at : at + PIECE_BYTES]
        sign = b"+" if at + PIECE_BYTES < len(text) else b"."
        os.write(2, b"\x1e" + mark.encode("ascii") + sign + piece + b"\x1e")


class _ChildPipe:
    """The reading end of the child's pipe: lines of JSON, and stacks as `faulthandler` writes."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.rest = b""
        self.bytes = 0
        self.other: List[str] = []

    def reports(self, seconds: float) -> List[Report]:
        """Wait at most so long, and return the reports that have come."""
        reports = []
        for line in self.read_lines(seconds):
            try:
                report = json.loads(line)
            except ValueError:
                report = None
            if isinstance(report, dict):
                reports.append(report)
            else:
                self.other.append(line)
        return reports

    def read_lines(self, seconds: float) -> List[str]:
        if self.bytes > CHILD_BYTES:
            time.sleep(seconds)
            return []
        if not select.select([self.descriptor], [], [], seconds)[0]:
            return []
        data = os.read(self.descriptor, 65536)
        if not data:  # the program closed its end
            time.sleep(seconds)
        self.bytes += len(data)
        lines = (self.rest + data).split(b"\n")
        self.rest = lines.pop()
        return [line.decode("utf-8", "replace") for line in lines]

    def stack(self) -> List[List[Any]]:
        """Return the frames of the last stack that came, of the program's own thread."""
        lines, self.other = self.other, []
        return parse_stack(lines)


def ask_stack(process: "subprocess.Popen[bytes]", pipe: _ChildPipe) -> List[List[Any]]:
    """Ask the child where it is. Empty if it does not answer, for example in a long C call."""
    pipe.stack()
    try:
        process.send_signal(signal.SIGUSR2)
    except OSError:
        return []
    end = time.monotonic() + STACK_SECONDS
    while time.monotonic() < end:
        count = pipe.bytes
        pipe.reports(0.2)
        if pipe.other and pipe.bytes == count:
            break
    return pipe.stack()


def parse_stack(lines: Sequence[str]) -> List[List[Any]]:
    """Return [file, line, function] of each frame, the deepest first, without the runner's own.

    Of several threads, take the one that this runner started the program in.
    """
    threads: List[List[List[Any]]] = [[]]
    for line in lines:
        if line.startswith(("Thread ", "Current thread ")):
            threads.append([])
        parts = line.strip().split('"')
        if len(parts) == 3 and parts[0] == "File " and parts[2].startswith(", line "):
            number, _, function = parts[2][len(", line ") :].partition(" in ")
            threads[-1].append([parts[1], int(number) if number.isdigit() else 0, function])
    own = os.path.abspath(__file__)
    for thread in threads:
        if any(os.path.abspath(frame[0]) == own for frame in thread):
            frames = [frame for frame in thread if os.path.abspath(frame[0]) != own]
            return frames[:FRAMES]
    return max(threads, key=len)[:FRAMES]


def is_importing(stack: Sequence[Sequence[Any]], folders: Sequence[str]) -> bool:
    """Return whether a module of another package is being imported.

    A program may also run while one of its own modules is imported.
    """
    inner: Optional[str] = None
    for frame in stack:
        if frame[0].startswith("<frozen importlib"):
            return inner is None or not is_below(inner, folders)
        inner = frame[0]
    return False


def is_below(path: str, folders: Sequence[str]) -> bool:
    below = tuple(folder.rstrip("/") + "/" for folder in folders)
    return not os.path.isabs(path) or path.startswith(below)


def run(descriptor: int, settings_path: str) -> None:
    """Run the program in this process, as Python itself would run it."""
    settings = read_settings(settings_path)
    os.set_inheritable(descriptor, False)
    own_process, here = os.getpid(), os.getcwd()

    def send(report: Report) -> None:
        if os.getpid() == own_process:  # not in its children
            with suppress(OSError):  # the program closed it
                os.write(descriptor, json.dumps(report).encode("ascii") + b"\n")

    faulthandler.register(signal.SIGUSR2, file=descriptor, all_threads=True)
    faulthandler.enable(file=descriptor)
    prepare_paths(settings, here)
    try:
        code, main = load_program(settings, send)
        exec(code, main.__dict__)  # noqa: S102 - the container exists for this
    except SystemExit as error:
        if error.code not in (None, 0):
            send(describe_error(error, here))
        raise
    except BaseException as error:  # noqa: BLE001 - as Python does
        send(describe_error(error, here))
        own = [os.path.abspath(__file__), os.path.abspath(importlib.util.__file__)]
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename in (__file__, *own):
            trace = trace.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        sys.exit(130 if isinstance(error, KeyboardInterrupt) else 1)


def prepare_paths(settings: Report, here: str) -> None:
    """Set the module search path and the variable for its children.

    Own modules of the program may have names of Python's modules that this runner has imported.
    """
    roots = list(settings["roots"])
    if roots:
        inherited = os.environ.get("PYTHONPATH")
        searched = [*roots, inherited] if inherited else roots
        os.environ["PYTHONPATH"] = os.pathsep.join(searched)
    first = here if settings["module"] else os.path.dirname(os.path.realpath(settings["program"]))
    folders = [first, *roots]
    sys.path[:1] = folders
    for name in list(sys.modules):
        shadows = [os.path.join(folder, name) for folder in folders]
        if "." in name or name in STARTED_WITH:
            continue
        if any(os.path.isfile(path + ".py") or is_package(path) for path in shadows):
            for part in list(sys.modules):
                if part == name or part.startswith(name + "."):
                    del sys.modules[part]


def is_package(path: str) -> bool:
    return os.path.isfile(os.path.join(path, "__init__.py"))


def load_program(
    settings: Report, send: Callable[[Report], None]
) -> Tuple[types.CodeType, types.ModuleType]:
    """Return the program's code and its new module, and set the arguments."""
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = builtins
    if settings["module"]:
        spec, path, source = find_module(settings["module"])
        sys.argv[0] = path
        main.__spec__, main.__package__, main.__loader__ = spec, spec.parent, spec.loader
    else:
        path = settings["program"]
        if sys.version_info < (3, 9):  # since 3.9, Python makes the path absolute
            path = os.path.relpath(path)
        sys.argv[0] = os.path.relpath(path)
        with open(path, "rb") as file:
            source = file.read()
        main.__loader__, main.__package__ = SourceFileLoader("__main__", path), None
    sys.argv[1:] = settings["arguments"]
    main.__file__ = path
    # Releases of Python differ in these names of a program's module, and this runner has them too.
    for name, value in (("__annotations__", {}), ("__cached__", None)):
        if name in vars(sys.modules["__main__"]):
            main.__dict__[name] = value
    reported: List[bool] = []

    def report_imports() -> None:
        if not reported:
            reported.append(True)
            send({"event": "imports"})

    code = compile_program(source, path)
    setattr(builtins, MARKER, report_imports)
    sys.modules["__main__"] = main
    return code, main


def find_module(name: str) -> Tuple[ModuleSpec, str, bytes]:
    """Return spec, file and source of the module that `python -m` runs: of a package, __main__."""
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = importlib.util.find_spec(name + ".__main__")
    loader = spec.loader if spec else None
    if spec is None or spec.origin is None or not isinstance(loader, SourceFileLoader):
        raise ModuleNotFoundError("No module named " + repr(name), name=name)
    return spec, spec.origin, loader.get_data(spec.origin)


def compile_program(source: bytes, path: str) -> types.CodeType:
    """Compile a program with calls of the marker, where no import of its module level follows."""
    tree = compile(source, path, "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
    try:
        if isinstance(tree, ast.Module):
            mark_imports(tree.body)
            return compile(tree, path, "exec", dont_inherit=True)
    except (RecursionError, ValueError):
        pass  # without the marker, the program reports nothing but its end
    return compile(source, path, "exec", dont_inherit=True)


def mark_imports(body: List[ast.stmt]) -> None:
    """Add calls after the last import of a list of statements, or at its begin if it has none."""
    at = 0
    for index, statement in enumerate(body):
        if has_import(statement):
            at = index + 1
    if at == 0:
        body.insert(count_prologue(body), make_call(body[0] if body else None))
        return
    last = body[at - 1]
    body.insert(at, make_call(last))
    for part in branches(last):
        if any(map(has_import, part)):
            mark_imports(part)


def has_import(statement: ast.stmt) -> bool:
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return True
    return any(any(map(has_import, part)) for part in branches(statement))


def branches(statement: ast.stmt) -> Iterator[List[ast.stmt]]:
    """Yield the lists of statements of a compound statement that runs in the same namespace."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return
    for field in ("body", "orelse", "finalbody"):
        part = getattr(statement, field, None)
        if isinstance(part, list) and part:
            yield part
    for handler in getattr(statement, "handlers", ()):
        yield handler.body


def count_prologue(body: Sequence[ast.stmt]) -> int:
    """Return the number of statements that must come first: the docstring."""
    first = body[0] if body else None
    is_text = isinstance(first, ast.Expr) and isinstance(
        first.value, getattr(ast, "Constant" if sys.version_info >= (3, 8) else "Str")
    )
    return 1 if is_text else 0


def make_call(near: Optional[ast.stmt]) -> ast.stmt:
    call = ast.Expr(ast.Call(ast.Name(MARKER, ast.Load()), [], []))
    if near is None:
        call.lineno, call.col_offset = 1, 0
    else:
        ast.copy_location(call, near)
    return ast.fix_missing_locations(call)


def describe_error(error: BaseException, here: str) -> Report:
    """Return the facts of an exception: its class, its text, and its frames, the deepest last."""
    frames, trace = [], error.__traceback__
    while trace is not None:
        frames.append(describe_frame(trace.tb_frame.f_code, trace.tb_lineno, here))
        trace = trace.tb_next
    frames = [frame for frame in frames if frame[0] != os.path.abspath(__file__)]
    if isinstance(error, SyntaxError) and isinstance(error.filename, str):
        place = os.path.join(here, error.filename)
        frames.append([place, error.lineno or 0, "", (error.text or "").strip()[:200]])
    report: Report = {"event": "error", "frames": frames[-FRAMES:]}
    report["classes"] = [kind.__name__ for kind in type(error).__mro__[:12]]
    report["module"] = str(type(error).__module__)
    report["message"] = text_of(error)
    for name in ("filename", "errno", "code"):
        value = getattr(error, name, None)
        if isinstance(value, (str, int)):
            report[name] = value[:TEXT_LENGTH] if isinstance(value, str) else value
        elif isinstance(value, bytes):
            report[name] = value.decode("utf-8", "replace")[:TEXT_LENGTH]
        elif name == "code" and value is not None:  # Python prints it, and exits with 1
            report[name] = text_of(value)
    report["causes"] = [[type(cause).__name__, text_of(cause)] for cause in causes_of(error)]
    return report


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """Yield at most four causes, the nearest first."""
    for _ in range(4):
        cause = error.__cause__
        if cause is None and not error.__suppress_context__:
            cause = error.__context__
        if cause is None:
            return
        yield cause
        error = cause


def describe_frame(code: types.CodeType, line: int, here: str) -> List[Any]:
    path = code.co_filename
    source = linecache.getline(path, line).strip()[:200]
    return [os.path.join(here, path), line, code.co_name, source]


def text_of(error: object) -> str:
    try:
        return str(error)[:TEXT_LENGTH]
    except Exception:  # noqa: BLE001 - of the program's own class
        return ""


#: Modules without which Python does not run; a program's own of such a name is never imported.
STARTED_WITH = frozenset(sys.builtin_module_names) | {
    "__main__", "_bootlocale", "_collections_abc", "_sitebuiltins", "_weakrefset", "abc", "codecs",
    "encodings", "genericpath", "io", "os", "posixpath", "site", "sitecustomize", "stat",
}  # fmt: skip


if __name__ == "__main__":
    if sys.argv[1] == "supervise":
        sys.exit(supervise(sys.argv[2], sys.argv[3]))
    run(int(sys.argv[2]), sys.argv[3])
