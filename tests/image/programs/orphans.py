"""Leave children without a parent, end them, and print those that nobody buried."""

import json
import os
import time

from patience import allowed

CHILDREN = 5
SECONDS = allowed(20.0)  # for an init on a busy machine


def orphan(pipe):
    """Start a grandchild whose parent ends first; it ends after it has told its number."""
    child = os.fork()
    if child == 0:
        grandchild = os.fork()
        if grandchild == 0:
            time.sleep(0.1)
            os.write(pipe, b"%d\n" % os.getpid())
        os._exit(0)
    os.waitpid(child, 0)


def state(number):
    """Return the letter of a process's state; None where it is gone."""
    try:
        with open("/proc/{}/stat".format(number)) as stream:
            return stream.read().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return None


def left(numbers):
    return [number for number in numbers if state(number) is not None]


def main():
    read, write = os.pipe()
    for _ in range(CHILDREN):
        orphan(write)
    os.close(write)
    with os.fdopen(read) as stream:
        numbers = [int(line) for line in stream]
    end = time.monotonic() + SECONDS
    while left(numbers) and time.monotonic() < end:
        time.sleep(0.02)
    zombies = [number for number in left(numbers) if state(number) == "Z"]
    return {"orphans": len(numbers), "zombies": len(zombies)}


if __name__ == "__main__":
    print(json.dumps(main()))
