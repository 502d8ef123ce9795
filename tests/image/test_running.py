"""Suite `running`: the image runs as its users run it, not only as root in a container of its own.

Any user, a read-only root, no more than the engine's shared memory, shells of all kinds, signals.
One start of a program gives the results of several tests.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from image_labels import image_config
from mpi import mpirun
from out_of_time import out_of_time
from run_modes import USERS, complaints, differing, hardened
from stop_times import ALONE, JOB, STOP_SECONDS, stopped

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from container import Container, Ran
    from expectation import Expectation
    from lab import Lab
    from stop_times import Stop

LASTS = 8
SECONDS = 120
INIT = ["/opt/python/bin/dumb-init", "--", "/usr/local/bin/as-user"]
#: In MiB, by user. Ranks hand a tensor on through /dev/shm, which has 64 of them; one user's is
#: larger, the others' are large enough for ranks to try to read each other's memory.
TENSOR = dict.fromkeys(USERS, 1) | {"unknown": 80}
SHELLS = ("sh", "bash", "login shell", "login shell of sh", "login shell without variables")
PROGRAMS = ("python", "pip", "git", "tensorboard")
#: Of a command by ssh. Source: sshd(8), and _PATH_STDPATH of Debian's and Ubuntu's sshd.
DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/games"
UTF_8 = {"utf-8", "UTF-8"}
#: Names that packages require TensorFlow by, and distributions with its files that no image is.
TENSORFLOWS = "tensorflow(-cpu|-gpu)?"
OTHER_TENSORFLOWS = ("tf-nightly", "tf-nightly-gpu", "intel-tensorflow", "tensorflow-rocm")
TEXT = "grün ✓"


@pytest.fixture(scope="module", params=list(USERS))
def user(request: pytest.FixtureRequest) -> str:
    """Return the name of a user in `run_modes`."""
    return str(request.param)


@pytest.fixture(scope="module")
def run_as(lab: Lab, profile: Path) -> Callable[[str], Container]:
    """Return how each user gets one container with a read-only root."""
    lab.bare("hardened", *hardened("root", profile))
    return cache(lambda user: lab.as_user("hardened", USERS[user]))


@pytest.fixture(scope="module")
def ranks(run_as: Callable[[str], Container], user: str, expect: Expectation) -> Ran:
    """Add up a tensor on two ranks, once a user."""
    container = run_as(user)
    program = ("python", container.path_of("mpi_rank.py"), str(TENSOR[user]))
    return container.run(*mpirun(expect.mpi, 2), *program, seconds=SECONDS)


@pytest.fixture(scope="module")
def stranger(run_as: Callable[[str], Container]) -> Container:
    """Return the container of a user that the image does not know."""
    return run_as("unknown")


@pytest.fixture(scope="module")
def names(expect: Expectation) -> tuple[str, ...]:
    """Return the programs that a user of this image calls by name."""
    mpi = () if expect.mpi_flavour is None else ("mpirun",)
    launcher = ("horovodrun",) if expect.horovodrun else ()
    return (*PROGRAMS, *mpi, *launcher, *(("conda",) if "miniconda" in expect.pins else ()))


@pytest.fixture(scope="module")
def around(container: Container, names: tuple[str, ...]) -> Ran:
    """Ask a program that `docker exec` starts what it finds around it."""
    return container.program("surroundings.py", "sleep", *names, seconds=SECONDS)


@pytest.mark.with_mpi
def test_two_ranks_add_up(ranks: Ran) -> None:
    """MPI starts two ranks without further settings, and they add up right."""
    result = ranks.json
    assert (result["size"], result["right"]) == (2, 2), f"ranks, and ranks that are right: {result}"


@pytest.mark.with_mpi
@pytest.mark.parametrize("user", ["unknown"], indirect=True)
def test_ranks_share_more_than_the_shared_memory(ranks: Ran, user: str) -> None:
    """One user's tensor is larger than all that ranks can share at once."""
    shared = ranks.json["shared memory"]
    assert shared < TENSOR[user] * 2**20, f"{shared} bytes of shared memory hold the tensor"


@pytest.mark.with_mpi
def test_mpi_says_nothing(ranks: Ran, user: str) -> None:
    """No warning, above all none of CMA's ("Read -1, expected …"): users think of an error."""
    assert ranks.output, "rank 0 printed nothing"
    found = complaints(ranks.stderr, named=not user.startswith("unknown"))
    assert not found, "\n".join(found)


def test_entry_point(pytestconfig: pytest.Config) -> None:
    """The entry point is an init: it hands signals on, and buries orphans."""
    found = entry_point(pytestconfig)
    assert found == INIT, f"the entry point is {found}, not {INIT}"


def entry_point(pytestconfig: pytest.Config) -> list[str]:
    """Return the image's entry point; none if it has none."""
    return image_config(pytestconfig.getoption("--hosts")).get("Entrypoint") or []


@pytest.fixture(scope="module")
def stops(lab: Lab, expect: Expectation) -> dict[str, Stop]:
    """Stop containers in which different things run, once for all tests."""
    return stopped(lab, expect.mpi_flavour)


@pytest.mark.parametrize("what", [*ALONE, pytest.param(JOB, marks=pytest.mark.with_mpi)])
def test_docker_stop_reaches_it(
    stops: dict[str, Stop], what: str, record_property: Callable[[str, object], None]
) -> None:
    """Whatever runs gets SIGTERM and ends of it; the seconds are a note in junit.xml."""
    record_property("seconds to stop", round(stops[what].seconds, 1))
    if stops[what].killed:
        out_of_time(
            f"docker stop of {what}: killed after {STOP_SECONDS} s, the signal did not reach it"
        )


@pytest.mark.parametrize(("command", "code"), [("no-such-program", 127), ("/etc/passwd", 126)])
def test_what_cannot_be_started_ends_as_in_a_shell(
    container: Container, pytestconfig: pytest.Config, command: str, code: int
) -> None:
    """Exit code 127 says that there is no such command, 126 that it cannot be run."""
    found = container.run(*entry_point(pytestconfig), command, seconds=30).ended_with
    assert found == code, f"{command} ends with exit code {found}, not {code}"


@pytest.fixture(scope="module")
def user_install(lab: Lab, expect: Expectation, pytestconfig: pytest.Config) -> dict[str, Any]:
    """Install a package as a user whom the image does not know, once for all tests."""
    container = lab.start("user-install", f"--user={USERS['unknown']}")
    names = {n: v for n, v in expect.packages.items() if re.fullmatch(TENSORFLOWS, n)}
    others = [*OTHER_TENSORFLOWS, *({"tensorflow-gpu"} - {*names})]
    program = (
        "python",
        container.path_of("user_install.py"),
        json.dumps(names),
        json.dumps(others),
    )
    ran = container.run(*entry_point(pytestconfig), *program, seconds=SECONDS)
    return dict(zip(("home", "name", "said", "beside", "taken", "pip"), ran.json, strict=True))


def test_a_user_without_a_name_installs_packages(user_install: dict[str, Any]) -> None:
    """Such a user has a home, and finds the scripts that pip put into it."""
    assert user_install["home"] not in {"/", "/root"}
    assert user_install["said"] == "here", user_install["pip"]


def test_user_without_a_name_gets_one(user_install: dict[str, Any]) -> None:
    """Python's getpass.getuser finds it, as many programs need; each id has its own."""
    assert "12345" in user_install["name"]


def test_whoever_requires_tensorflow_has_it(user_install: dict[str, Any]) -> None:
    """A package that requires it under each of its names brings no other one."""
    assert user_install["beside"] == ["asks_for_tensorflow-1.dist-info"], user_install["pip"]


def test_no_other_tensorflow_can_be_installed(user_install: dict[str, Any]) -> None:
    """Neither a newer one, nor the same files under another name, nor a nightly build."""
    assert user_install["taken"] == []


def test_orphans_are_buried(container: Container) -> None:
    """What outlives its parent leaves no zombie: they would fill the table of processes."""
    found = container.program("orphans.py", seconds=30).json
    assert found["zombies"] == 0, f"{found['zombies']} of {found['orphans']} orphans are zombies"


@pytest.mark.parametrize("other", ["docker run", "sh", "bash"])
def test_environment_is_the_same(around: Ran, other: str) -> None:
    """A process has the same variables under `docker run`, `docker exec` and in a shell."""
    wrong = differing(around.json["environment"]["docker exec"], around.json["environment"][other])
    assert not wrong, "\n".join(f"docker exec {ours}; {other} {theirs}" for ours, theirs in wrong)


def test_login_shell_has_the_images_variables(around: Ran, pytestconfig: pytest.Config) -> None:
    """Whoever comes by ssh or su starts from nothing, and has what the image sets all the same."""
    config = image_config(pytestconfig.getoption("--hosts"))
    ours = dict(entry.split("=", 1) for entry in config["Env"])
    found = around.json["environment"]["login shell without variables"]
    wrong = [
        f"{name}={found.get(name)}, not {ours[name]}"
        for name in ours
        if found.get(name) != ours[name]
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("shell", SHELLS)
def test_shell_finds_the_programs(around: Ran, shell: str) -> None:
    """Each name is found: /etc/profile gives login shells a PATH of their own."""
    found = around.json["programs"][shell]
    missing = sorted(name for name in found if not found[name])
    assert not missing, f"a {shell} does not find {', '.join(missing)}"


@pytest.mark.parametrize("name", ["python", "python3"])
def test_the_default_path_has_the_images_python(container: Container, name: str) -> None:
    """Whoever comes by ssh has it, and it starts at once: what starts itself runs for ever."""
    words = ("env", "-i", f"PATH={DEFAULT_PATH}", name, "-c", "import sys; print(sys.prefix)")
    assert container.run(*words, seconds=10).output.strip() == "/opt/python"


def test_text_is_utf_8(around: Ran) -> None:
    """Files, their names and the terminal are UTF-8, though Python 3.6 asks the locale."""
    written: dict[str, Any] = around.json["written"]
    assert written["fault"] is None, written["fault"]
    assert set(around.json["encodings"]) <= UTF_8, around.json["encodings"]
    assert (written["text"], written["names"]) == (TEXT, [TEXT])
    assert bytes.fromhex(written["bytes"]).decode() == TEXT


def test_clock_shows_utc(around: Ran) -> None:
    """Log files of several nodes can be compared; a user who wants another zone says so in TZ."""
    assert around.json["date"] == "+0000 UTC"


@pytest.mark.parametrize(("zone", "hour"), [("UTC", 0), ("CET-1CEST", 1), ("Europe/Berlin", 1)])
def test_time_zone_can_be_chosen(around: Ran, zone: str, hour: int) -> None:
    """TZ is obeyed: without the zones' data a name would silently mean UTC."""
    assert around.json["hours"][zone] == hour, f"TZ={zone}: midnight in UTC is not hour {hour}"


@pytest.mark.pinned("miniconda")
def test_conda_is_of_use(stranger: Container) -> None:
    """Conda knows itself and lists the environment, without a network, for any user."""
    known = stranger.run("conda", "info", "--json", seconds=SECONDS).output
    assert json.loads(known)["root_prefix"] == "/opt/miniconda"
    listed = stranger.run("conda", "list", "--prefix", "/opt/python", seconds=SECONDS).output
    assert any(line.startswith("python ") for line in listed.splitlines()), listed
