"""The programs of a repository, started in a real image, and how far they get."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from imgbuild.adopt.closure import Closure, Entry
from imgbuild.adopt.failures import Start
from imgbuild.adopt.repository import Evidence
from imgbuild.adopt.start import start_program
from support.checkout import ROOT, Bases, Checkout
from support.waiting import wait_for

NAME = "tf-2.2-cpu-debian"
SECONDS = 120
#: A program that checks its surroundings.
SURROUNDINGS = """\
import getpass, os, socket, tempfile
import tensorflow as tf

assert os.getcwd() == "/work"
assert os.getuid() != 0
open(os.path.join(os.environ["HOME"], "file"), "w").close()
tempfile.mkstemp()
open("output.txt", "w").close()
getpass.getuser()
socket.gethostbyname(socket.gethostname())
try:
    socket.create_connection(("1.1.1.1", 53), 3)
except OSError:
    print("alone", tf.__version__)
"""


@dataclass(frozen=True)
class Starter:
    """Starts programs of a folder in one image."""

    client: tuple[str, ...]
    image: str
    folder: Path

    def start(  # noqa: PLR0913 - the program
        self,
        files: Mapping[str, str],
        entry: str = "main.py",
        *,
        roots: tuple[str, ...] = (),
        package_name: str = "",
        lines: list[str] | None = None,
        seconds: float = 60,
    ) -> Start:
        for name, text in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        closure = Closure(Entry(entry, Evidence(entry)), (), roots=roots, package_name=package_name)
        return start_program(
            self.client,
            self.image,
            self.folder,
            closure,
            seconds=seconds,
            on_line=None if lines is None else lines.append,
        )


@pytest.fixture
def starter(base: Bases, checkout: Checkout, tmp_path: Path) -> Starter:
    client = ("docker", "-H", checkout.host) if checkout.host else ("docker",)
    return Starter(client, base(NAME).tag, tmp_path)


def test_program_runs_alone_on_a_copy(starter: Starter) -> None:
    lines: list[str] = []
    start = starter.start({"main.py": SURROUNDINGS}, lines=lines)
    assert start.outcome == "finished"
    assert "alone 2.2.3" in lines
    assert [path.name for path in starter.folder.iterdir()] == ["main.py"]


def test_program_that_trains_is_running(starter: Starter) -> None:
    text = "import tensorflow as tf\nimport time\nfor step in range(1000):\n"
    text += "    print('step', step)\n    time.sleep(0.1)\n"
    lines: list[str] = []
    start = starter.start({"main.py": text}, seconds=2, lines=lines)
    assert start.outcome == "running"
    assert start.place in {"main.py:4", "main.py:5"}
    assert "step 0" in lines


def test_program_stops_for_data_and_arguments(starter: Starter) -> None:
    data = "import tensorflow as tf\ntf.io.read_file('data/x.txt')\n"
    start = starter.start({"main.py": data})
    assert (start.outcome, start.reason, start.asked) == ("stops", "data", "data/x.txt")
    network = "import tensorflow as tf\ntf.keras.datasets.mnist.load_data()\n"
    start = starter.start({"main.py": network})
    assert (start.outcome, start.reason) == ("stops", "network")
    flags = (
        "import tensorflow.compat.v1 as tf\ntf.flags.DEFINE_string('data', None, 'Data.')\n"
        "tf.flags.mark_flag_as_required('data')\ntf.app.run(print)\n"
    )
    start = starter.start({"main.py": flags})
    assert (start.outcome, start.reason, start.place) == ("stops", "arguments", "main.py:4")


def test_program_fails_with_class_and_place(starter: Starter) -> None:
    files = {"main.py": "import part\n", "part.py": "import json\n\nimport imgbuild_none\n"}
    start = starter.start(files)
    assert (start.outcome, start.missing) == ("fails", "imgbuild_none")
    assert start.place == "part.py:3"
    library = "import ctypes\nctypes.CDLL('libimgbuild-none.so.1')\n"
    start = starter.start({"main.py": library})
    assert start.missing == "libimgbuild-none.so.1"


def test_program_is_a_package_with_its_own_folder(starter: Starter) -> None:
    files = {
        "run/main.py": "import mine.part\nimport other\nprint(open('names.txt').read())\n",
        "run/names.txt": "names",
        "part.py": "",
        "lib/other.py": "",
    }
    lines: list[str] = []
    start = starter.start(files, "run/main.py", roots=("lib",), package_name="mine", lines=lines)
    assert (start.outcome, start.folder, lines[-1]) == ("finished", "run", "names")


STARTER = """\
import sys
from pathlib import Path
from imgbuild.adopt.closure import Closure, Entry
from imgbuild.adopt.repository import Evidence
from imgbuild.adopt.start import start_program

client, image, folder = sys.argv[1].split(), sys.argv[2], Path(sys.argv[3])
closure = Closure(Entry("main.py", Evidence("main.py")), ())
start_program(client, image, folder, closure, on_line=lambda line: print(line, flush=True))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_interrupt_leaves_no_container(
    starter: Starter, checkout: Checkout, number: signal.Signals
) -> None:
    """After SIGKILL, the engine removes the container because its client ends."""
    text = "import os, time\nprint(os.environ['HOSTNAME'], flush=True)\ntime.sleep(600)\n"
    (starter.folder / "main.py").write_text(text)
    words = [sys.executable, "-c", STARTER, " ".join(starter.client), starter.image]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "build")}

    def list_containers() -> set[str]:
        own = ("--all", "--filter=name=imgbuild-adopt-", "--format={{.Names}}")
        return {*checkout.printed("ps", *own).split()}

    before = list_containers()
    with subprocess.Popen(
        [*words, str(starter.folder)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == b"adopt\n"
        assert len(list_containers() - before) == 1
        process.send_signal(number)
        process.wait(SECONDS)
    wait_for(lambda: not list_containers() - before, SECONDS, "the end of the container")
