"""Run programs one after another, each in a process of its own, for one start of TensorFlow.

Argument: JSON, a list of commands, each the path of a program and its arguments. This process only
imports TensorFlow; each program is a fork of it, so none sees what another did. Prints one JSON:
the exit code of each, and what it wrote.
"""

import json
import os
import runpy
import sys
import tempfile

import quiet_tensorflow  # noqa: F401


def forked(words):
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        child = os.fork()
        if child == 0:
            os.dup2(stdout.fileno(), 1)
            os.dup2(stderr.fileno(), 2)
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


print(json.dumps([forked(words) for words in json.loads(sys.argv[1])]))
