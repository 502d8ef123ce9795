"""Run a program that uses TensorFlow in a process of its own, without waiting for TensorFlow's start.

Arguments: the seconds that it may take, its path, its own arguments. The first call imports
TensorFlow and leaves a server that has done nothing else. The program is a fork of it, so it sees
nothing of what others did. The server ends once its socket is removed. Prints one JSON: the
program's exit code, and what it wrote.
"""

import json
import os
import runpy
import signal
import socket
import sys
import tempfile

SOCKET = os.path.join(os.path.dirname(os.path.abspath(__file__)), "one_start.socket")
PAUSE = 3  # seconds between two looks at the socket


def forked(seconds, words):
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        child = os.fork()
        if child == 0:
            os.dup2(stdout.fileno(), 1)
            os.dup2(stderr.fileno(), 2)
            signal.alarm(seconds)
            sys.argv = words
            runpy.run_path(words[0], run_name="__main__")
            sys.exit()
        status = os.waitpid(child, 0)[1]
        for stream in (stdout, stderr):
            stream.seek(0)
        return {
            "exit_code": 128 + os.WTERMSIG(status)
            if os.WIFSIGNALED(status)
            else os.WEXITSTATUS(status),
            "stdout": stdout.read().decode(errors="replace"),
            "stderr": stderr.read().decode(errors="replace"),
        }


def serve(listener):
    listener.settimeout(PAUSE)
    while os.path.exists(SOCKET):
        try:
            connection = listener.accept()[0]
        except socket.timeout:
            continue
        with connection, connection.makefile("rw") as stream:
            print(json.dumps(forked(*json.loads(stream.readline()))), file=stream)


def leave_a_server():
    """Return when a server with TensorFlow listens."""
    import quiet_tensorflow  # noqa: F401

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(SOCKET)
        listener.listen(1)
        if os.fork() == 0:
            os.setsid()
            for stream in range(3):
                os.dup2(os.open(os.devnull, os.O_RDWR), stream)
            serve(listener)
            sys.exit()


def main(seconds, *words):
    if not os.path.exists(SOCKET):
        leave_a_server()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(SOCKET)
        with connection.makefile("rw") as stream:
            print(json.dumps([int(seconds), words]), file=stream, flush=True)
            print(stream.readline(), end="")


main(*sys.argv[1:])
