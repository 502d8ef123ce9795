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
from versions import MODULES, PREFIX, Image, os_release, reader, same_version

if TYPE_CHECKING:
    from container import Container
    from expectation import Expectation
    from packaging.specifiers import SpecifierSet

STANDIN = "imgbuild.standin"
#: What `pip check` may say, by TensorFlow's version, each with its reason. There is none: the locks
#: were solved together, and a conflict that someone has to live with is to be written here.
KNOWN_CONFLICTS: dict[str, frozenset[str]] = {}
#: The file that pip and uv read.
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


def test_pin(
    component: str, image: Image, expect: Expectation, request: pytest.FixtureRequest
) -> None:
    """One component has the version of its pin."""
    if component == "tensorflow":
        request.getfixturevalue("importable")
    found, pin = reader(component)(image), expect.pins[component]
    assert same_version(component, pin, found), f"{component}: pinned {pin}, the image has {found}"


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


def test_the_system_is_for_the_platform(container: Container, expect: Expectation) -> None:
    """The system's packages and the Python are for the architecture that the platform names."""
    architecture = expect.platform.partition("/")[2]
    found = container.run("dpkg", "--print-architecture", seconds=10).output.strip()
    assert found == architecture
    named = container.run("uname", "-m", seconds=10).output.strip()
    assert named == {"amd64": "x86_64", "arm64": "aarch64"}[architecture]


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


@pytest.fixture
def constraints(container: Container) -> dict[str, SpecifierSet]:
    """Return the versions that the image's constraints admit, by name."""
    lines = container.run("cat", CONSTRAINTS, seconds=10).output.splitlines()
    texts = (line.partition("#")[0].strip() for line in lines)
    found = [Requirement(text) for text in texts if text]
    return {canonicalize_name(one.name): one.specifier for one in found}


def test_constraints_fit_what_is_installed(
    container: Container,
    distributions: list[tuple[str, str]],
    constraints: dict[str, SpecifierSet],
) -> None:
    """Those that pip's configuration and `UV_CONSTRAINT` name admit the installed versions."""
    named = container.run("printenv", "UV_CONSTRAINT", seconds=10)
    assert named.stdout.split() == [CONSTRAINTS]
    for_pip = container.run("python", "-m", "pip", "config", "list", seconds=60)
    assert f"'{CONSTRAINTS}'" in for_pip.stdout, "pip has no constraints"
    assert str(constraints["tf-nightly"]) == "<0", "another TensorFlow may be installed"
    wrong = [
        f"{name}: the image has {version}, {CONSTRAINTS} {constraints[name]}"
        for name, version in distributions
        if name in constraints and not constraints[name].contains(version, prereleases=True)
    ]
    assert not wrong, "\n".join(wrong)
    for name in ("numpy", "protobuf", "tensorboard"):
        version = dict(distributions)[name]
        assert str(constraints[name]) == f"=={version}", f"{name} may change"


def test_pip_leaves_what_stays(
    container: Container,
    distributions: list[tuple[str, str]],
    constraints: dict[str, SpecifierSet],
) -> None:
    """A package that stays gets no newer release; asked for one, pip names the constraint."""
    installed = dict(distributions)
    staying = {name for name in installed if str(constraints.get(name, "")).startswith("==")}
    found = container.program("newer_packages.py", json.dumps(installed), seconds=120).json
    replaced = ", ".join(sorted(staying - {*found["kept"]}))
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
