"""Run the commands of other programs; where one fails, its own words are what is reported."""

import subprocess
import sys

#: Of `timeout`: the clock ended the program, and nothing was found to be wrong.
OUT_OF_TIME = 124
LINES_SHOWN = 20


def output(command, merged=False):
    """Return what a command printed; end this program with its last words where it fails."""
    stderr = subprocess.STDOUT if merged else subprocess.PIPE
    ran = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr)
    stdout, errors = ran.communicate()
    if ran.returncode != 0:
        words = (errors or stdout).decode(errors="replace").splitlines()
        print("\n".join(words[-LINES_SHOWN:]), file=sys.stderr)
        last = next(filter(None, map(str.strip, reversed(words))), "it said nothing")
        sys.exit("{} ended with exit code {}: {}".format(command[0], ran.returncode, last))
    return stdout


def give_up(words):
    """End this program because it waited too long."""
    print(words, file=sys.stderr)
    sys.exit(OUT_OF_TIME)
