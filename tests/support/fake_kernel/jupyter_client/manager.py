"""A kernel in this process, whose messages are those of ipykernel 5.5 for the same code."""

import contextlib
import io
import os
import sys
import traceback
from queue import Empty, Queue
from types import SimpleNamespace


class KernelManager:
    def __init__(self, kernel_name):
        assert kernel_name == "python3"
        self.lives = False
        self.kernel = SimpleNamespace(returncode=None)

    def start_kernel(self, cwd):
        assert cwd == os.getcwd()
        self.lives = True

    def blocking_client(self):
        return Client(self)

    def is_alive(self):
        return self.lives

    def shutdown_kernel(self, now):
        assert now
        self.lives = False


class Client:
    def __init__(self, manager):
        self.manager = manager
        self.published, self.replies = Queue(), Queue()
        magics = []
        shell = SimpleNamespace(
            register_magic_function=lambda function, magic_name: magics.append(magic_name)
        )
        self.odd = []
        self.names = {
            "__name__": "__main__",
            "get_ipython": lambda: shell,
            "MAGICS": magics,
            "ODD": self.odd,
        }
        self.count = 0

    def start_channels(self):
        pass

    stop_channels = start_channels

    def wait_for_ready(self, timeout):
        # Messages of the kernel's start have another parent.
        self.published.put(message("status", {"execution_state": "starting"}, "0"))

    def get_iopub_msg(self, timeout):
        return take(self.published)

    def get_shell_msg(self, timeout):
        return take(self.replies)

    def execute(  # the names of jupyter_client
        self, source, silent=False, user_expressions=None, allow_stdin=True, stop_on_error=True
    ):
        assert silent or not (allow_stdin or stop_on_error)
        self.count += 1
        name = str(self.count)
        if user_expressions:
            (text,) = user_expressions.values()
            (key,) = user_expressions
            answer = "1" if self.odd else repr(eval(text, {}))
            data = {"data": {"text/plain": answer}}
            content = {"status": "ok", "user_expressions": {key: data}}
            self.replies.put(message("execute_reply", content, name))
            return name
        if source.startswith("die"):
            self.manager.lives = False
            self.manager.kernel.returncode = int(source.partition(" ")[2] or -11)
            return name
        if source in {"drop", "exit"}:
            payload = [{"source": "ask_exit"}] if source == "exit" else []
            content = {"status": "ok", "payload": payload}
            self.replies.put(message("execute_reply", content, name))
            return name
        output, status = io.StringIO(), "ok"
        try:
            with contextlib.redirect_stdout(output):
                exec(compile(source, f"<ipython-input-{name}-abc>", "exec"), self.names)  # noqa: S102
        except BaseException as error:  # noqa: BLE001 - as the kernel does
            status, sys.last_value = "error", error
        if output.getvalue():
            stream = {"name": "stdout", "text": output.getvalue()}
            self.published.put(message("stream", stream, name))
        if status == "error":
            lines = traceback.format_exception_only(type(sys.last_value), sys.last_value)
            red = {"traceback": [f"\x1b[0;31m{line}\x1b[0m" for line in lines]}
            self.published.put(message("error", red, name))
        self.published.put(message("status", {"execution_state": "idle"}, name))
        self.replies.put(message("execute_reply", {"status": status}, name))
        return name


def message(kind, content, parent):
    return {"msg_type": kind, "content": content, "parent_header": {"msg_id": parent}}


def take(queue):
    try:
        return queue.get_nowait()
    except Empty:
        raise Empty from None
