"""Suite `pins`: every pinned version, read from the running image, is the one that was promised.

Documented pins of such images have been wrong; the only proof is what the image itself says.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from image_labels import image_labels
from label_forms import PIN, contradictions, malformed
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from versions import MODULES, PREFIX, Image, begins, os_release, reader, same_version

if TYPE_CHECKING:
    from container import Container
    from expectation import Expectation

STANDIN = "imgbuild.standin"
#: What `pip check` may say, by TensorFlow's version, each with its reason. There is none: the locks
#: were solved together, and a conflict that someone has to live with is to be written here.
KNOWN_CONFLICTS: dict[str, frozenset[str]] = {}
#: What pip and uv read, each by a variable of its own.
CONSTRAINTS = f"{PREFIX}/constraints.txt"


@pytest.fixture(scope="module")
def image(container: Container, expect: Expectation) -> Image:
    """Ask the image's Python once for everything it knows."""
    python = container.forked("installed.py", *MODULES, seconds=120)
    return Image(container, python, expect)


@pytest.fixture
def distributions(image: Image) -> list[tuple[str, str]]:
    """Return name and version of every distribution that the image's Python can see."""
    pairs = image.python.json["distributions"]
    return [(canonicalize_name(name), version) for name, version in pairs]


@pytest.fixture
def constraints(container: Container) -> list[Requirement]:
    """Return the image's constraints."""
    text = container.run("cat", CONSTRAINTS, seconds=10).output
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    return [Requirement(line) for line in lines if line]


def test_pin(
    component: str, image: Image, expect: Expectation, request: pytest.FixtureRequest
) -> None:
    """One component has the version of its pin."""
    if component == "tensorflow":
        request.getfixturevalue("importable")
    found, pin = reader(component)(image), expect.pins[component]
    same = begins if expect.partial else same_version
    assert same(component, pin, found), f"{component}: pinned {pin}, the image has {found}"


@pytest.mark.usefixtures("of_a_stack")
def test_python_lies_where_all_stacks_have_it(image: Image) -> None:
    """The interpreter on PATH is the image's, not one that the distribution or conda brought."""
    assert image.python.json["prefix"] == PREFIX


@pytest.mark.pinned("miniconda")
def test_conda_knows_the_environment(container: Container, expect: Expectation) -> None:
    """Conda lists the environment, with the pinned Python in it.

    A stand-in for the package keeps its name, whatever is in it, and so does the label.
    """
    listed = container.run("conda", "list", "--prefix", PREFIX, seconds=120).output.splitlines()
    found = [line.split()[1] for line in listed if line.split()[:1] == ["python"]]
    pinned = expect.labels.get("imgbuild.pin.python", expect.pins["python"])
    assert found == [pinned], f"pinned {pinned}, conda lists {found}"


def test_distribution_is_the_pinned_one(container: Container, expect: Expectation) -> None:
    """The operating system is the stack's; the pin `os` has its release only."""
    found = os_release(container).get("ID", "none")
    assert found == expect.os_id, f"the image is {found}, not {expect.os_id}"


def test_locked_packages_are_installed(
    distributions: list[tuple[str, str]], expect: Expectation
) -> None:
    """Every package of the lock is there, with the lock's version."""
    found = dict(distributions)
    locked = {canonicalize_name(name): version for name, version in expect.packages.items()}
    wrong = [
        f"{name}: locked {version}, the image has {found.get(name, 'none')}"
        for name, version in sorted(locked.items())
        if name not in found or Version(found[name]) != Version(version)
    ]
    assert not wrong, "\n".join(wrong)


def test_nothing_beyond_the_lock_is_installed(
    distributions: list[tuple[str, str]], expect: Expectation
) -> None:
    """No package is there that nobody locked: its version would be chance.

    Horovod is compiled for the image and pinned, so the lock need not name it.
    """
    named = {canonicalize_name(name) for name in expect.packages} | {"horovod"} & {*expect.pins}
    extra = [f"{name}=={version}" for name, version in distributions if name not in named]
    assert not extra, f"in the image but not in the lock: {', '.join(sorted(extra))}"


def test_each_package_is_installed_once(distributions: list[tuple[str, str]]) -> None:
    """No package left a second version's metadata behind, or lies in two places."""
    counts = Counter(name for name, _ in distributions)
    twice = [f"{name}=={version}" for name, version in distributions if counts[name] > 1]
    assert not twice, f"installed more than once: {', '.join(sorted(twice))}"


def test_requirements_agree(container: Container, expect: Expectation) -> None:
    """No package asks for another, or another version, than the lock has: `pip check`."""
    check = ("python", "-m", "pip", "--disable-pip-version-check", "check")
    ran = container.run(*check, seconds=60)
    found = {line for line in ran.stdout.splitlines() if not line.startswith("No broken")}
    known = KNOWN_CONFLICTS.get(expect.tensorflow, frozenset())
    assert not ran.failed or found, f"pip check failed: {ran.stderr.strip()}"
    assert found <= known, "\n".join(["not known:", *sorted(found - known)])
    assert known <= found, "\n".join(["known, but no longer so:", *sorted(known - found)])


@pytest.mark.usefixtures("of_a_stack")
def test_what_is_installed_satisfies_the_constraints(
    container: Container,
    distributions: list[tuple[str, str]],
    constraints: list[Requirement],
) -> None:
    """The file that `PIP_CONSTRAINT` and `UV_CONSTRAINT` name keeps TensorFlow as it is."""
    named = container.run("printenv", "PIP_CONSTRAINT", "UV_CONSTRAINT", seconds=10)
    assert named.stdout.split() == [CONSTRAINTS] * 2
    refused = {one.name for one in constraints if str(one.specifier) == "<0"}
    assert "tf-nightly" in refused, "another TensorFlow may be installed over the image's"
    installed = dict(distributions)
    assert {"numpy", "protobuf", "tensorboard"} <= _kept(constraints)
    wrong = [
        f"{one.name}: the image has {installed[one.name]}, {CONSTRAINTS} says {one.specifier}"
        for one in constraints
        if one.name in installed
        and not one.specifier.contains(installed[one.name], prereleases=True)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.usefixtures("of_a_stack")
def test_pip_leaves_what_the_image_keeps(
    container: Container,
    distributions: list[tuple[str, str]],
    constraints: list[Requirement],
) -> None:
    """Pip installs no newer release of these; told to, it fails and names the constraint."""
    installed = dict(distributions)
    found = container.program("newer_packages.py", json.dumps(installed), seconds=120).json
    kept = _kept(constraints) & installed.keys()
    replaced = ", ".join(sorted(kept - {*found["kept"]}))
    assert not replaced, f"pip would replace {replaced}:\n{found['said']}"
    held = f"The user requested (constraint) numpy=={installed['numpy']}"
    assert held in found["refused"], found["refused"]


@pytest.mark.usefixtures("importable")
def test_pin_labels_say_what_is_inside(
    image: Image, pytestconfig: pytest.Config, expect: Expectation
) -> None:
    """Each label of a pin is the version that the image itself tells: no label is only a wish.

    The label of a stand-in's component names what it stands for.
    """
    labels = pin_labels(image_labels(pytestconfig.getoption("--hosts")))
    wished = pin_labels(expect.labels) if expect.standin else {}
    told = {name: reader(name)(image) for name in labels if name in expect.pins}
    wrong = [
        f"{PIN}{name}={label}, but the image has {told.get(name, 'nothing that is known')}"
        for name, label in sorted(labels.items())
        if label != wished.get(name) or wished[name] == expect.pins.get(name)
        if name not in told or not same_version(name, label, told[name])
    ]
    assert not wrong, "\n".join(wrong)


def test_labels_have_their_forms(pytestconfig: pytest.Config, expect: Expectation) -> None:
    """OCI's labels, and imgbuild's own, can be read by machines, and do not contradict each other.

    An image from elsewhere has its own labels, or none.
    """
    labels = image_labels(pytestconfig.getoption("--hosts"))
    wrong = malformed(labels) + contradictions(labels) if expect.labels else []
    assert not wrong, "\n".join(wrong)


def test_a_stand_in_build_says_so(pytestconfig: pytest.Config, expect: Expectation) -> None:
    """An image of stand-ins is labelled, and no other: only the label keeps it from being used."""
    label = image_labels(pytestconfig.getoption("--hosts")).get(STANDIN)
    assert bool(label) is expect.standin, f"{STANDIN}: {label}"


def test_labels(pytestconfig: pytest.Config, expect: Expectation) -> None:
    """The image's labels say what the expectation says; the image may have more of them."""
    found = image_labels(pytestconfig.getoption("--hosts")) if expect.labels else {}
    wrong = [
        f"{name}: expected {value}, the image has {found.get(name, 'none')}"
        for name, value in sorted(expect.labels.items())
        if found.get(name) != value
    ]
    assert not wrong, "\n".join(wrong)


def pin_labels(labels: dict[str, str]) -> dict[str, str]:
    """Return the labels of pins by component."""
    return {name.removeprefix(PIN): labels[name] for name in labels if name.startswith(PIN)}


def _kept(constraints: list[Requirement]) -> set[str]:
    return {one.name for one in constraints if str(one.specifier).startswith("==")}
