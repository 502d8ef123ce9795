"""Wait until no process is left but those named; print the others.

Arguments: seconds to wait at most, then the ids of processes that may stay. So may this process and
those that it descends from, and what was started by `docker exec`: its first process has a parent
outside of the container, 0. What outlives its own parent is a child of process 1.
"""

import json
import os
import sys
import time

PAUSE = 0.2


def read(pid, name):
    with open("/proc/{}/{}".format(pid, name)) as stream:
        return stream.read()


def parent_of(pid):
    """Return the id of the parent; the second field, a name in brackets, may hold anything."""
    return read(pid, "stat").rpartition(")")[2].split()[1]


def ancestors(pid):
    while pid != "0":
        yield pid
        pid = parent_of(pid)


def others(known):
    """Return the processes that are not `known`, by id, as they were called."""
    found = {}
    for pid in set(filter(str.isdigit, os.listdir("/proc"))) - known:
        try:
            if list(ancestors(pid))[-1] != "1":
                continue
            state = read(pid, "stat").rpartition(")")[2].split()[0]
            words = read(pid, "cmdline").replace("\0", " ").strip() or read(pid, "comm").strip()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has just ended
        found[pid] = "{} ({})".format(words, state)
    return found


deadline = time.time() + float(sys.argv[1])
known = set(sys.argv[2:]) | set(ancestors(str(os.getpid())))
left = others(known)
while left and time.time() < deadline:
    time.sleep(PAUSE)
    left = others(known)
print(json.dumps(left))
