"""Run the tasks of one cluster as processes of this machine; print what the first job's tasks found.

Arguments: seconds, the tasks of each job as JSON ({"worker": 2}), then the program with its words.
The first job's tasks must end by themselves; the others serve until then, and are ended.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time

from commands import give_up

PAUSE = 0.1
LETTERS = 1000  # of what each task printed last
SECONDS_TO_DIE = 5


def free_ports(count):
    """Return ports of the loopback that nobody uses; all are held until all are known."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def start(words, cluster, job, index):
    """Start a task; return its process, and the file with what it prints."""
    config = {"cluster": cluster, "task": {"type": job, "index": index}}
    output = tempfile.TemporaryFile("w+")
    environment = dict(os.environ, TF_CONFIG=json.dumps(config))
    words = [sys.executable, *words]
    return subprocess.Popen(words, env=environment, stdout=output, stderr=output), output


def text(output):
    output.seek(0)
    return output.read()


def wait(processes, seconds):
    """Return the exit codes once all ended, one ended badly, or time is up (None: it runs)."""
    deadline = time.time() + seconds
    codes = [None]
    while time.time() < deadline and None in codes and not any(codes):
        codes = [process.poll() for process in processes]
        time.sleep(PAUSE)
    return codes


def end(process):
    process.terminate()
    try:
        process.wait(SECONDS_TO_DIE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


seconds, jobs, words = int(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3:]
ports = iter(free_ports(sum(jobs.values())))
cluster = {
    job: ["127.0.0.1:{}".format(next(ports)) for _ in range(count)] for job, count in jobs.items()
}
first = next(iter(jobs))
tasks = [(job, index) for job, count in jobs.items() for index in range(count)]
started = {}
try:
    for job, index in tasks:
        started[job, index] = start(words, cluster, job, index)
    ended = wait([process for (job, _), (process, _) in started.items() if job == first], seconds)
finally:
    codes = {task: process.poll() for task, (process, _) in started.items()}
    for process, _ in started.values():
        end(process)
if any(code != 0 for code in ended):
    for (job, index), (_, output) in started.items():
        code = codes[job, index]
        state = "did not end" if code is None else "ended with exit code {}".format(code)
        print("--- {} {} {}".format(job, index, state), file=sys.stderr)
        print(text(output)[-LETTERS:], file=sys.stderr)
    if not any(ended):
        give_up("the cluster did not end within {} s".format(seconds))
    sys.exit("a task of the cluster ended with exit code {}".format(next(filter(None, ended))))
found = [text(output) for (job, _), (_, output) in sorted(started.items()) if job == first]
# What a task prints on its way out may come after its result.
lines = [[line for line in one.splitlines() if line.startswith("{")][-1] for one in found]
print(json.dumps([json.loads(line) for line in lines]))
