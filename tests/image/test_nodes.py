"""Suite `nodes`: Horovod over two and three containers that reach each other by ssh.

As root, with the image's entry point and port 22; and as uid 1000, as Kubeflow's mpi-operator
starts an MPIJob, with sshd in place of the entry point. Each start of a job gives all its results.
The first is of MPI alone, since TensorFlow takes long to start; in the second Horovod trains, and
one node is killed in mid-run.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import nodes_numbers
import pytest
from expectation import read_expectation
from limits import allowed
from mpi import says_lost
from nodes_job import SECONDS_TO_END, Job, Start, run_job
from out_of_time import out_of_time
from ssh import USERS, Nodes, start_nodes

if TYPE_CHECKING:
    from expectation import Expectation
    from lab import Lab

pytestmark = pytest.mark.usefixtures("importable")
WITH_MPI = True
LASTS = 14
SAME_NUMBER = 1e-5  # the weights are small differences of larger float32 numbers
#: How ssh itself has it: a user's `git clone git@…` asks before it trusts a host.
OWN_SSH = {"stricthostkeychecking": "ask", "port": "22", "loglevel": "INFO"}
#: In the names of the tests for which TensorFlow and Horovod must run.
TRAINS = {"collective", "training"}
NAMES = {"root": ("a", "b"), "mpiuser": ("launcher", "worker-0", "worker-1")}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make one test a way to start a job: of those that train or lose a node what needs it."""
    if "start" not in metafunc.fixturenames:
        return
    expect = read_expectation(Path(metafunc.config.getoption("--expect")))
    name = metafunc.function.__name__
    words = {*name.split("_")}
    found = [
        start
        for start in starts(horovodrun=expect.horovodrun)
        if (start.kills or "lost" not in name) and (start.trains or TRAINS.isdisjoint(words))
    ]
    metafunc.parametrize("start", found, ids=str, scope="module")


def starts(*, horovodrun: bool) -> list[Start]:
    """Return the ways to start a job: one as each user; after the first all nodes are left."""
    return [
        Start("root", "horovodrun" if horovodrun else "mpirun", 2, trains=False, kills=False),
        Start("mpiuser", "mpirun", 3, trains=True, kills=True),
    ]


@pytest.fixture(scope="module")
def nodes(lab: Lab) -> dict[str, Nodes]:
    """Start the nodes of both users."""
    return {user: start_nodes(lab, USERS[user], names) for user, names in NAMES.items()}


@pytest.fixture(scope="module")
def job(start: Start, nodes: dict[str, Nodes], expect: Expectation, lab: Lab) -> Job:
    """Start a job, once for all tests, where its nodes reach each other."""
    its_nodes = nodes[start.user]
    if its_nodes.ready.failed:
        return Job(its_nodes.names, its_nodes.ready)
    return run_job(its_nodes, start, expect.mpi, lab)


@pytest.mark.parametrize("user", sorted(USERS))
def test_nodes_reach_each_other_without_a_question(nodes: dict[str, Nodes], user: str) -> None:
    """The mounted key serves sshd, and the first node runs commands on all others."""
    assert nodes[user].ready.output == ""


@pytest.mark.parametrize("user", sorted(USERS))
def test_ssh_of_users_trusts_no_host(nodes: dict[str, Nodes], user: str) -> None:
    """What nodes need is set for MPI alone."""
    said = nodes[user].first.run("ssh", "-G", "git.example.org", seconds=10).output
    found = dict(line.split(" ", 1) for line in said.splitlines() if " " in line)
    assert {name: found.get(name) for name in OWN_SSH} == OWN_SSH
    assert "/dev/null" not in found["userknownhostsfile"]


def test_every_node_runs_one_rank(job: Job) -> None:
    """Every rank ran on the node that it was meant for, and knew of the others."""
    assert [result["node"] for result in job.ranks()] == job.names


@pytest.mark.parametrize("collective", ["sum", "mean", "broadcast", "allgather"])
def test_collective_is_exact(job: Job, collective: str) -> None:
    """All ranks get exactly the right numbers, in every type."""
    expected = {
        name: tensor
        for name, tensor in nodes_numbers.collectives(len(job.names)).items()
        if name.split()[0] == collective
    }
    for result in job.ranks():
        found = {name: result["collectives"][name] for name in expected}
        assert found == expected, f"on node {result['node']}"


def test_training_ends_with_the_same_bits_everywhere(job: Job) -> None:
    """After several steps on different data the weights are bit-equal."""
    bits = {result["node"]: result["weight bits"] for result in job.ranks()}
    assert len(set(bits.values())) == 1, bits


def test_training_is_that_of_one_process_on_the_joined_batch(job: Job) -> None:
    """The weights are those of one process that has all ranks' data in one batch."""
    expected = pytest.approx(nodes_numbers.trained(len(job.names)), rel=SAME_NUMBER)
    for result in job.ranks():
        assert result["weights"] == expected, f"on node {result['node']}"


def test_ranks_write_the_text_of_the_image(job: Job) -> None:
    """A command by ssh has the image's LANG, without which Python 3.6 would write ASCII."""
    encodings = {result["node"]: result["encoding"].upper() for result in job.ranks()}
    assert encodings == dict.fromkeys(job.names, "UTF-8")


def test_lost_node_ends_the_job_with_its_name(start: Start, job: Job, expect: Expectation) -> None:
    """A node that is killed in mid-run ends the job soon, and the launcher says which it was."""
    job.ranks()
    assert job.took is not None, "the job ended before a node was killed"
    if job.took >= allowed(SECONDS_TO_END):
        out_of_time(f"the job goes on {allowed(SECONDS_TO_END)} s after the node's death")
    assert job.ran.ended_with != 0, f"{start}: the job ended as if nothing had been"
    said = job.ran.stdout + job.ran.stderr
    if not says_lost(expect.mpi, job.names[-1], said):
        pytest.fail(f"no word of the lost node {job.names[-1]}:\n{said}", pytrace=False)


def test_lost_node_leaves_no_process_on_the_others(job: Job) -> None:
    """On the nodes that are left nothing goes on, neither ranks nor what started them."""
    job.ranks()
    found = {name: left.json for name, left in job.left.items()}
    assert found == {name: {} for name in job.names[:-1]}
