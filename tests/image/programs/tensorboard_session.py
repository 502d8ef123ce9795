"""Two TensorBoards at once, from their start to their end by SIGTERM, while events are written.

Argument: JSON with `logdir` (its folders `first` and `second` are a server's each), `apis` (for
events_write.py), `servers` (`port` and further `options` of each), `points` (on the first server,
after the first part and after both), `graphs` (the route that lists them) and `projector_page`.
The file LOGDIR/serving appears when both show what was written first, or never will; they serve
until LOGDIR/asked appears, so that others can ask too. Prints one JSON: the answers, how the servers ended, and what
they left behind, told by a mark in the environment that children inherit.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid

from commands import give_up
from patience import allowed
from tensorboard_http import SECONDS_TO_ANSWER, Board, asked_until, encoded, is_late, points_in

SECONDS_TO_SERVE = allowed(90)
SECONDS_TO_LOAD = allowed(100)  # for all waits for what was written, together
SECONDS_TO_BE_ASKED = allowed(90)
SECONDS_TO_STOP = allowed(60)  # beside a compiler that has all cores, 1.15 took more than 20
MARK = "IMGBUILD_SUITE_MARK"
HERE = os.path.dirname(os.path.abspath(__file__))
QUIET = dict(TF_CPP_MIN_LOG_LEVEL="3", PYTHONWARNINGS="ignore", CUDA_VISIBLE_DEVICES="-1")


class Patience:
    """Seconds that several waits share: where nothing loads, not each of them ends by the clock."""

    def __init__(self, seconds):
        self.left = seconds

    def until(self, right, ask):
        began = time.time()
        answer = asked_until(self.left, right, ask)
        self.left = max(0, self.left - (time.time() - began))
        return answer


LOADING = Patience(SECONDS_TO_LOAD)


class Server:
    def __init__(self, logdir, port, options, mark):
        self.log = logdir + ".log"
        self.board = Board("127.0.0.1", port)
        command = ["tensorboard", "--logdir", logdir, "--port", str(port)] + options
        environment = dict(os.environ, **QUIET, **{MARK: mark})
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                command + ["--reload_interval", "1"], env=environment, stdout=log, stderr=log
            )

    def wait_for_answer(self):
        """Wait until it serves; end this program with the reason where it does not."""
        runs = asked_until(SECONDS_TO_SERVE, lambda answer: answer is not None, self.runs)
        if runs is None:
            give_up("tensorboard did not answer in {} s\n{}".format(SECONDS_TO_SERVE, self.words()))

    def runs(self):
        if self.process.poll() is not None:
            words = "tensorboard ended by itself with exit code {}\n{}"
            sys.exit(words.format(self.process.poll(), self.words()))
        try:
            return self.board.runs()
        except (OSError, ValueError):
            return None

    def words(self):
        with open(self.log, errors="replace") as log:
            return log.read()

    def version(self):
        """Return the version by which it greets."""
        pattern = r"TensorBoard (\S+) at "
        found = LOADING.until(bool, lambda: re.search(pattern, self.words()))
        return found and found.group(1)

    def wait_for_end(self, began):
        """Return the exit code (None: it had to be killed) and the seconds since the signal."""
        try:
            code = self.process.wait(max(0.1, began + SECONDS_TO_STOP - time.time()))
        except subprocess.TimeoutExpired:
            code = None
        return {"exit_code": code, "seconds": round(time.time() - began, 2)}

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class Writer:
    def __init__(self, logdir, apis):
        command = [sys.executable, os.path.join(HERE, "events_write.py"), logdir] + apis
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe)

    def wait_for_first_part(self):
        if not self.process.stdout.readline():
            self.end_badly()

    def write_second_part(self):
        printed, _ = self.process.communicate(b"go on\n")
        if self.process.returncode:
            self.end_badly()
        return json.loads(printed.decode().splitlines()[-1])

    def end_badly(self):
        sys.exit("writing events failed with exit code {}".format(self.process.wait()))

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


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


def projector(board, run, page):
    """Return what the projector's routes say of RUN, and of the page with nothing else on it."""
    status, kind, body = board.get(page)
    entry, _, _ = board.get("data/plugin_entry.html", name="projector")
    runs = LOADING.until(bool, lambda: board.json("plugin/projector/runs"))
    found = {
        "runs": runs,
        "listed": board.json("plugins_listing").get("projector"),
        "page": {"status": status, "type": kind, "shows": b"vz-projector-dashboard" in body},
        "entry": entry,
    }
    if run in runs:
        route = "plugin/projector/"
        found["info"] = board.json(route + "info", run=run)
        found["tensor"] = encoded(board.data(route + "tensor", run=run, name="vectors"))
        found["labels"] = board.data(route + "metadata", run=run, name="vectors").decode()
    return found


def answers(board, task):
    return {
        "histograms": board.each_tag("histograms", "histograms"),
        "images": board.images(),
        "text": board.each_tag("text", "text"),
        "graphs": board.graphs(task["graphs"]),
        "projector": projector(board, "v1", task["projector_page"]),
    }


def watch_and_ask(task, writer, servers):
    """Return what the first server shows before and after the second part, and all it has."""
    board = servers[0].board
    before, after = task["points"]

    def shown(count):
        """Return the scalars and the runs, and whether all points are there in time."""
        found = LOADING.until(lambda s: points_in(s) >= count, board.scalars)
        return {"scalars": found, "runs": board.runs(), "in_time": points_in(found) >= count}

    for server in servers:
        server.wait_for_answer()
    writer.wait_for_first_part()
    found = {"before": shown(before)}
    LOADING.until(bool, servers[1].board.runs)
    touch(task, "serving")
    found["written"] = writer.write_second_part()
    found["after"] = shown(after)
    return dict(found, **answers(board, task))


def own_answers(server):
    board = server.board
    runs = LOADING.until(bool, board.runs)
    return {"version": server.version(), "runs": sorted(runs), "scalars": board.scalars()}


def touch(task, name):
    with open(os.path.join(task["logdir"], name), "a"):
        pass


def wait_until_asked(task):
    file = os.path.join(task["logdir"], "asked")
    asked_until(SECONDS_TO_BE_ASKED, bool, lambda: os.path.exists(file))


def stop(servers):
    began = time.time()
    for server in servers:
        server.process.send_signal(signal.SIGTERM)
    return [server.wait_for_end(began) for server in servers]


def session(task):
    logdir, mark = task["logdir"], uuid.uuid4().hex
    writer = Writer(logdir, task["apis"])
    servers = []
    try:
        for name, options in zip(("first", "second"), task["servers"]):
            folder = os.path.join(logdir, name)
            servers.append(Server(folder, options["port"], options["options"], mark))
        found = watch_and_ask(task, writer, servers)
        found["servers"] = [own_answers(server) for server in servers]
        wait_until_asked(task)
        found["running"] = marked_processes(mark)
        found["ends"] = stop(servers)
        found["left"] = marked_processes(mark)
        return found
    finally:
        touch(task, "serving")
        for process in [writer] + servers:
            process.kill()


try:
    print(json.dumps(session(json.loads(sys.argv[1]))))
except OSError as error:
    if not is_late(error):
        raise
    give_up("tensorboard did not answer a request in {} s".format(SECONDS_TO_ANSWER))
