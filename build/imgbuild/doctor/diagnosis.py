"""Everything the doctor looks at, all at once, and what follows from it."""

from collections.abc import Iterator
from dataclasses import dataclass

from imgbuild.doctor.ca_bundle import CaState, check_ca, choose_ca, read_ca_state
from imgbuild.doctor.concurrently import Question
from imgbuild.doctor.disk import check_disk
from imgbuild.doctor.engine_findings import check_engine
from imgbuild.doctor.engine_state import EngineState, read_engine
from imgbuild.doctor.finding import Finding, Status, fine
from imgbuild.doctor.inputs import Inputs
from imgbuild.doctor.machine import Machine
from imgbuild.doctor.own_engine import OwnEngine
from imgbuild.doctor.programs import Programs
from imgbuild.matrix.model import Matrix
from imgbuild.project import cache_dir
from imgbuild.settings import Settings


@dataclass(frozen=True)
class Diagnosis:
    """What was found, and where builds on this machine take their inputs from."""

    findings: tuple[Finding, ...]
    engine: EngineState
    choice: Settings
    """The settings with every input decided; what ``--write`` writes."""

    @property
    def missing(self) -> tuple[Finding, ...]:
        """What keeps a build from being done."""
        return tuple(row for row in self.findings if row.status is Status.MISSING)

    @property
    def able(self) -> bool:
        """Whether a build can be done."""
        return not self.missing

    @property
    def packages(self) -> tuple[str, ...]:
        """The packages that are missing, each once."""
        return tuple(dict.fromkeys(name for row in self.findings for name in row.packages))


@dataclass(frozen=True)
class Doctor:
    """Looks at one machine for one checkout."""

    matrix: Matrix
    machine: Machine
    programs: Programs
    own: OwnEngine

    def diagnose(self, settings: Settings, *, writing: bool = False) -> Diagnosis:
        """Look at everything. Changes nothing; takes seconds, whatever does not answer.

        ``writing`` promises that the choice is recorded, so that what it decides is in force.
        """
        ca = read_ca_state()
        bundle = choose_ca(settings.ca_bundle, ca)
        inputs = Inputs(self.matrix, settings, self.machine, self.programs, bundle)
        engine_asked = Question(lambda: read_engine(settings.engine))
        index = inputs.ask_index()
        bootstraps = inputs.ask_bootstraps()
        interpreters = [asked.answer() for asked in inputs.ask_interpreters()]
        choice = inputs.choose(interpreters)
        in_force = choice if writing else settings
        engine = engine_asked.answer()
        findings = (
            *check_engine(engine, self.machine, self.own),
            *_disks(engine),
            *(asked.answer() for asked in bootstraps),
            *inputs.check_registries(engine),
            *inputs.check_interpreters(interpreters, choice, in_force),
            index.answer(),
            *self._surroundings(ca, in_force),
        )
        return Diagnosis(findings, engine, choice)

    def _surroundings(self, ca: CaState, settings: Settings) -> Iterator[Finding]:
        yield check_ca(ca, settings.ca_bundle, self.machine.doctor("--write"))
        yield check_client(self.programs)
        yield check_git(self.machine, self.programs)


def check_client(programs: Programs) -> Finding:
    """Return whether the suites can run commands in containers: testinfra calls ``docker``."""
    found = programs.find("docker")
    if found:
        return fine("docker client", f"{found}, for the suites")
    detail = "missing; images can be built, but their suites cannot run (build --no-test)"
    mend = "put a docker client on PATH (docker-cli in newer Debian, docker.io in Ubuntu)"
    return Finding(Status.WARNING, "docker client", detail, mend)


def check_git(machine: Machine, programs: Programs) -> Finding:
    """Return whether images can be labelled with the commit they were built from."""
    if programs.find("git"):
        return fine("git", "images are labelled with the commit they were built from")
    detail = "missing; images get no revision label, and --changed-since does not work"
    return Finding(Status.WARNING, "git", detail, machine.install("git"), ("git",))


def _disks(engine: EngineState) -> Iterator[Finding]:
    if engine.data_root:
        prune = "docker builder prune; docker image prune"
        yield check_disk("disk, engine", engine.data_root, prune)
    cache = cache_dir()
    yield check_disk("disk, cache", cache, f"rm -r {cache}, or set XDG_CACHE_HOME")
