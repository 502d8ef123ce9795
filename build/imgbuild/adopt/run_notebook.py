"""Run in a container, by its own Python (3.6 and later): run the cells of a notebook by a kernel.

    run DESCRIPTOR SETTINGS   report to a pipe, whose other end the supervisor of `run_entry` reads

The kernel is the one that the image's JupyterLab starts, so magics and commands of a shell work as
they do in the browser.
"""

import ast
import faulthandler
import json
import os
import re
import signal
import sys
from queue import Empty
from typing import Any, Callable, Dict, List, Optional

Report = Dict[str, Any]

#: Seconds until the kernel answers, and between two looks whether it lives.
READY_SECONDS, ALIVE_SECONDS = 90, 1.0
#: The file of a cell's code, before and since ipykernel 6.
CELL_FILE = re.compile(r"<ipython-input-[^/]*>$|/ipykernel_\d+/[^/]+\.py$")
#: The facts of the last error of the kernel, as `run_entry` gives them of a program's error.
FACTS = (
    "__import__('runpy').run_path({runner!r})['describe_error']"
    "(__import__('sys').last_value, __import__('os').getcwd())"
)


def run_notebook(path: str, send: Callable[[Report], None]) -> int:
    """Run the cells until one fails, and return the exit code; report imports and the error.

    The imports are done after the first cell that has some.
    """
    # The image has these if it has JupyterLab.
    import nbformat
    from jupyter_client.manager import KernelManager

    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(cwd=os.getcwd())
    client = manager.blocking_client()
    client.start_channels()
    done = False
    try:
        client.wait_for_ready(timeout=READY_SECONDS)
        for number, cell in enumerate(cells, 1):
            if not run_cell(client, manager, cell.source):
                send(describe_failure(client, manager, path, number))
                return 1
            if not done and re.search(r"^\s*(?:import|from)\s", cell.source, re.MULTILINE):
                done = True
                send({"event": "imports"})
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    return 0


def run_cell(client: Any, manager: Any, source: str) -> bool:
    """Run a cell, and print its output; return whether it succeeded."""
    message = client.execute(source, allow_stdin=False)
    while True:
        answer = next_message(client.get_iopub_msg, manager)
        if answer is None:
            return False
        if answer["parent_header"].get("msg_id") != message:
            continue
        kind, content = answer["msg_type"], answer["content"]
        if kind == "stream":
            stream = sys.stderr if content["name"] == "stderr" else sys.stdout
            stream.write(content["text"])
            stream.flush()
        elif kind == "error":
            sys.stderr.write(without_colours("\n".join(content["traceback"])) + "\n")
        elif kind == "status" and content["execution_state"] == "idle":
            break
    reply = wait_for_reply(client, manager, message)
    return reply is not None and reply["status"] == "ok"


def wait_for_reply(client: Any, manager: Any, message: str) -> Optional[Report]:
    """Return the content of the reply to a message; None if the kernel died."""
    while True:
        answer = next_message(client.get_shell_msg, manager)
        if answer is None:
            return None
        if answer["parent_header"].get("msg_id") == message:
            content: Report = answer["content"]
            return content


def next_message(get: Callable[..., Report], manager: Any) -> Optional[Report]:
    """Return the next message of the kernel; None if it died."""
    while True:
        try:
            return get(timeout=ALIVE_SECONDS)
        except Empty:
            if not manager.is_alive():
                return None


def describe_failure(client: Any, manager: Any, path: str, number: int) -> Report:
    """Return the facts of a cell's error. Its place is the notebook, with the cell as the line."""
    if not manager.is_alive():
        text = f"the kernel died in cell {number}"
        return {"event": "error", "classes": ["SystemExit"], "message": text, "code": text}
    runner = os.path.join(os.path.dirname(os.path.abspath(__file__)), "run_entry.py")
    asked = {"facts": FACTS.format(runner=runner)}
    message = client.execute("", silent=True, user_expressions=asked, allow_stdin=False)
    reply = wait_for_reply(client, manager, message) or {}
    facts = reply.get("user_expressions", {}).get("facts", {})
    try:
        report: Report = ast.literal_eval(facts["data"]["text/plain"])
    except (KeyError, ValueError, SyntaxError):
        return {"event": "error", "classes": ["Exception"], "message": json.dumps(facts)[:500]}
    frames: List[List[Any]] = []
    for frame in report["frames"]:
        if CELL_FILE.search(frame[0]):
            frames.append([path, number, *frame[2:]])
        elif frames:  # the first frames are those of the kernel itself
            frames.append(frame)
    return dict(report, frames=frames or [[path, number, "", ""]])


def without_colours(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def main(descriptor: int, settings_path: str) -> int:
    """Run the notebook of the settings, and return the exit code."""
    os.set_inheritable(descriptor, False)
    # The supervisor asks for a stack at the limit of time.
    faulthandler.register(signal.SIGUSR2, file=descriptor, all_threads=True)
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
