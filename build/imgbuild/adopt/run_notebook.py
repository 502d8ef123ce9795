"""Run in a container, by its own Python (3.6 and later): run the cells of a notebook by a kernel.

    run DESCRIPTOR SETTINGS   report to a pipe, whose other end the supervisor of `run_entry` reads

The kernel is the one that the image's JupyterLab starts, so magics and commands of a shell work as
they do in the browser. nbclient also runs notebooks, but it is newer than packages of 2019, and
`execute_interactive` of jupyter_client does not end if the kernel dies.
"""

import ast
import json
import os
import re
import signal
import sys
import time
from queue import Empty
from typing import Any, Callable, Dict, List, Optional

Report = Dict[str, Any]

#: Seconds until the kernel answers, and after a cell's end for the rest of its output.
READY_SECONDS, OUTPUT_SECONDS = 90, 3.0
#: The file of a cell's code, before and since ipykernel 6.
CELL_FILE = re.compile(r"<ipython-input-[^/]*>$|/ipykernel_\d+/[^/]+\.py$")
#: Colab's magic for the version of TensorFlow, which the image decides.
SETUP = "get_ipython().register_magic_function(lambda line: None, magic_name='tensorflow_version')"
#: The facts of the last error of the kernel, as `run_entry` gives them of a program's error.
FACTS = (
    "__import__('runpy').run_path({runner!r})['describe_error']"
    "(__import__('sys').last_value, __import__('os').getcwd())"
)


def run_notebook(path: str, send: Callable[[Report], None]) -> int:
    """Run the cells until one fails or ends the kernel, and return the exit code.

    Report the error, and the end of the imports: the end of the first cell that has some, or the
    first output. TensorFlow's own messages are no output, but errors.
    """
    # The image has these if it has JupyterLab.
    import nbformat
    from jupyter_client.manager import KernelManager

    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(cwd=os.getcwd())
    client = manager.blocking_client()
    client.start_channels()
    reported: List[bool] = []

    def report_imports() -> None:
        if not reported:
            reported.append(True)
            send({"event": "imports"})

    try:
        client.wait_for_ready(timeout=READY_SECONDS)
        wait_for_reply(client, manager, client.execute(SETUP, silent=True))
        if not any(has_import(cell.source) for cell in cells):
            report_imports()
        for number, cell in enumerate(cells, 1):
            reply = run_cell(client, manager, cell.source, report_imports)
            if reply is not None and has_exited(reply):
                return 0
            if reply is None or reply["status"] != "ok":
                return end_after_failure(client, manager, path, number, send)
            if has_import(cell.source):
                report_imports()
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    return 0


def has_import(source: str) -> bool:
    return bool(re.search(r"^\s*(?:import|from)\s", source, re.MULTILINE))


def has_exited(reply: Report) -> bool:
    """Return whether a cell called ``exit()``, after which the kernel ends."""
    return any(payload.get("source") == "ask_exit" for payload in reply.get("payload", ()))


def run_cell(
    client: Any, manager: Any, source: str, on_output: Callable[[], None]
) -> Optional[Report]:
    """Run a cell, print its output, and return the kernel's reply; None if the kernel died.

    The kernel drops output if it is read too slowly, and perhaps the message that it is idle. After
    an error, it would refuse the next question for a moment, unless it does not stop on errors.
    """
    message = client.execute(source, allow_stdin=False, stop_on_error=False)
    reply: Optional[Report] = None
    end = 0.0
    while reply is None or time.monotonic() < end:
        answer = next_message(client.get_iopub_msg)
        if answer is None:
            if reply is None:
                reply = read_reply(client, message)
                end = time.monotonic() + OUTPUT_SECONDS
            if reply is None and not manager.is_alive():
                return None
        elif answer["parent_header"].get("msg_id") == message:
            if answer["msg_type"] == "stream" and answer["content"]["name"] == "stdout":
                on_output()
            if not print_output(answer):
                break
    return reply or wait_for_reply(client, manager, message)


def print_output(answer: Report) -> bool:
    """Print a message of the kernel; return False for the last one of a cell."""
    kind, content = answer["msg_type"], answer["content"]
    if kind == "stream":
        stream = sys.stderr if content["name"] == "stderr" else sys.stdout
        stream.write(content["text"])
        stream.flush()
    elif kind == "error":
        sys.stderr.write(without_colours("\n".join(content["traceback"])) + "\n")
    return not (kind == "status" and content["execution_state"] == "idle")


def wait_for_reply(client: Any, manager: Any, message: str) -> Optional[Report]:
    """Return the content of the reply to a message; None if the kernel died."""
    while True:
        reply = read_reply(client, message)
        if reply is not None or not manager.is_alive():
            return reply


def read_reply(client: Any, message: str) -> Optional[Report]:
    """Return the content of the reply to a message if it comes within a second."""
    answer = next_message(client.get_shell_msg)
    if answer is None or answer["parent_header"].get("msg_id") != message:
        return None
    content: Report = answer["content"]
    return content


def next_message(get: Callable[..., Report]) -> Optional[Report]:
    """Return the next message of a channel if it comes within a second."""
    try:
        return get(timeout=1.0)
    except Empty:
        return None


def end_after_failure(
    client: Any, manager: Any, path: str, number: int, send: Callable[[Report], None]
) -> int:
    """Report why a cell failed, and return the exit code: 0 if it only ended the program."""
    if not manager.is_alive():
        send(describe_death(manager, path, number))
        return 1
    try:
        report = describe_failure(client, manager, path, number)
        if report["classes"][0] == "SystemExit" and report.get("code", 0) == 0:
            return 0
        send(report)
    except Exception:  # noqa: BLE001 - the program can change what its kernel answers
        text = f"cell {number} failed"
        send({"event": "error", "classes": ["Exception"], "message": text, "frames": []})
    return 1


def describe_death(manager: Any, path: str, number: int) -> Report:
    """Return the facts of a kernel that died. Linux kills one that needs too much memory."""
    process = getattr(manager, "kernel", None)  # before jupyter_client 7
    if process is None:
        process = getattr(getattr(manager, "provisioner", None), "process", None)
    code = getattr(process, "returncode", None)
    text = f"the kernel died in cell {number}"
    sys.stderr.write(text + "\n")
    classes = ["KernelDiedError"]
    if code == -signal.SIGKILL:
        classes.append("MemoryError")
    frames = [[path, number, "", ""]]
    return {"event": "error", "classes": classes, "message": text, "frames": frames}


def describe_failure(client: Any, manager: Any, path: str, number: int) -> Report:
    """Return the facts of a cell's error. Its place is the notebook, with the cell as the line."""
    runner = os.path.join(os.path.dirname(os.path.abspath(__file__)), "run_entry.py")
    asked = {"facts": FACTS.format(runner=runner)}
    message = client.execute("", silent=True, user_expressions=asked, allow_stdin=False)
    reply = wait_for_reply(client, manager, message) or {}
    report: Report = ast.literal_eval(reply["user_expressions"]["facts"]["data"]["text/plain"])
    frames: List[List[Any]] = []
    for frame in report["frames"]:
        if CELL_FILE.search(frame[0]):
            frames.append([path, number, *frame[2:]])
        elif frames:  # the first frames are those of the kernel itself
            frames.append(frame)
    report["frames"] = frames or [[path, number, "", ""]]
    json.dumps(report)
    return report


def without_colours(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def main(descriptor: int, settings_path: str) -> int:
    """Run the notebook of the settings, and return the exit code."""
    os.set_inheritable(descriptor, False)
    # The supervisor asks for a stack, but this process does not know the kernel's.
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    with open(settings_path, encoding="utf-8") as file:
        settings = json.load(file)
    inherited = os.environ.get("PYTHONPATH")
    searched = [*settings["roots"], inherited] if inherited else settings["roots"]
    os.environ["PYTHONPATH"] = os.pathsep.join(searched)

    def send(report: Report) -> None:
        os.write(descriptor, json.dumps(report).encode("ascii") + b"\n")

    return run_notebook(settings["program"], send)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[2]), sys.argv[3]))
