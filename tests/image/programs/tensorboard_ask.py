"""Start TensorBoard, ask it over HTTP what it shows, stop it with SIGTERM.

Arguments: LOGDIR, then the number of points to wait for: it loads them while it serves. Prints the
answers, how TensorBoard ended, and the processes it left behind, told by a mark in their
environment that children inherit.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
import uuid

SECONDS_TO_SERVE = 60
SECONDS_TO_LOAD = 15
SECONDS_TO_STOP = 5
MARK = "IMGBUILD_SUITE_MARK"
direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def get(port, path, **query):
    url = "http://127.0.0.1:{}/data/{}?{}".format(port, path, urllib.parse.urlencode(query))
    with direct.open(url, timeout=10) as response:
        return json.loads(response.read().decode("utf-8"))


def wait_for_answer(server, port):
    """Wait until TensorBoard serves; end this program with the reason where it does not."""
    deadline, fault = time.time() + SECONDS_TO_SERVE, None
    while time.time() < deadline:
        if server.poll() is not None:
            sys.exit("tensorboard ended by itself with exit code {}".format(server.poll()))
        try:
            return get(port, "runs")
        except OSError as error:
            fault = error
            time.sleep(0.1)
    sys.exit("tensorboard did not answer in {} s: {}".format(SECONDS_TO_SERVE, fault))


def wait_for_points(port, count):
    """Return the answers once they hold `count` points, or what there is when time is up."""
    deadline = time.time() + SECONDS_TO_LOAD
    found = answers(port)
    while points_in(found) < count and time.time() < deadline:
        time.sleep(0.2)
        found = answers(port)
    return found


def points_in(found):
    return sum(len(points) for tags in found["scalars"].values() for points in tags.values())


def answers(port):
    tags = get(port, "plugin/scalars/tags")
    scalars = {
        run: {tag: points(get(port, "plugin/scalars/scalars", run=run, tag=tag)) for tag in found}
        for run, found in tags.items()
    }
    return {"runs": get(port, "runs"), "scalars": scalars}


def points(rows):
    """Return step and value of each row; the wall time is left out."""
    return [row[1:] for row in rows]


def stop(server):
    """Return the exit code after SIGTERM (None: it had to be killed) and the seconds it took."""
    began = time.time()
    server.send_signal(signal.SIGTERM)
    try:
        code = server.wait(SECONDS_TO_STOP)
    except subprocess.TimeoutExpired:
        code = None
    return {"exit_code": code, "seconds": round(time.time() - began, 2)}


def marked_processes(mark):
    """Return the command lines of all other processes with the mark in their environment."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/{}/environ".format(pid), "rb") as environ:
                marked = mark.encode() in environ.read()
            with open("/proc/{}/cmdline".format(pid), "rb") as cmdline:
                command = cmdline.read().replace(b"\0", b" ").decode().strip()
        except OSError:
            continue  # it has ended meanwhile, or is another user's
        if marked:
            found.append("{} {}".format(pid, command))
    return found


def serve_and_ask(logdir, count):
    port, mark = free_port(), uuid.uuid4().hex
    command = ["tensorboard", "--logdir", logdir, "--host", "127.0.0.1", "--port", str(port)]
    quiet = dict(TF_CPP_MIN_LOG_LEVEL="3", PYTHONWARNINGS="ignore", CUDA_VISIBLE_DEVICES="-1")
    environment = dict(os.environ, **quiet, **{MARK: mark})
    server = subprocess.Popen(command + ["--reload_interval", "1"], env=environment)
    try:
        wait_for_answer(server, port)
        found = wait_for_points(port, count)
        running = marked_processes(mark)
        return dict(found, running=running, end=stop(server), left=marked_processes(mark))
    finally:
        if server.poll() is None:
            server.kill()
            server.wait()


print(json.dumps(serve_and_ask(sys.argv[1], int(sys.argv[2]))))
