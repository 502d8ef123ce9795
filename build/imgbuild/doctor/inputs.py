"""The inputs of builds: every question asked at once, then where each is taken from."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from imgbuild.doctor.base_images import check_bootstrap, check_registry
from imgbuild.doctor.concurrently import Question
from imgbuild.doctor.engine_state import EngineState
from imgbuild.doctor.finding import Finding, skipped
from imgbuild.doctor.interpreters import (
    InterpreterState,
    check_interpreter,
    choose_interpreter,
    read_interpreter,
)
from imgbuild.doctor.machine import Machine
from imgbuild.doctor.package_index import check_index
from imgbuild.doctor.programs import Programs
from imgbuild.matrix.images import all_images
from imgbuild.matrix.model import Matrix
from imgbuild.settings import BootstrapBase, PrefixInterpreter, RegistryBase, Settings


@dataclass(frozen=True)
class Inputs:
    """What there is to ask: the matrix says what is needed, the settings where it comes from."""

    matrix: Matrix
    settings: Settings
    machine: Machine
    programs: Programs
    ca_bundle: str | None

    @property
    def systems(self) -> list[str]:
        """The operating systems that images stand on."""
        return list(dict.fromkeys(image.os_name for image in all_images(self.matrix)))

    @property
    def pythons(self) -> list[str]:
        """The versions of CPython that images have."""
        return list(dict.fromkeys(i.version_of("python") for i in all_images(self.matrix)))

    def ask_index(self) -> Question[Finding]:
        """Ask whether the Python package index answers."""
        return Question(lambda: check_index(self.programs, self.ca_bundle))

    def ask_bootstraps(self) -> list[Question[Finding]]:
        """Ask for each base image that is made here."""
        return [
            self._ask_bootstrap(name)
            for name in self.systems
            if isinstance(self.settings.base_for(name, self._image(name)), BootstrapBase)
        ]

    def _ask_bootstrap(self, name: str) -> Question[Finding]:
        system = self.matrix.operating_systems[name]
        return Question(lambda: check_bootstrap(name, system, self.machine, self.programs))

    def ask_interpreters(self) -> list[Question[InterpreterState]]:
        """Ask for each CPython that is compiled from a source, or replaced by a prefix."""
        asked = []
        for version in self.pythons:
            python = self.matrix.python[version]
            if python.origin == "source":
                url = self.matrix.sources[python.source].url
                asked.append(self._ask_interpreter(version, url))
        return asked

    def _ask_interpreter(self, version: str, url: str) -> Question[InterpreterState]:
        current = self.settings.cpython.get(version)
        named = Path(current.path) if isinstance(current, PrefixInterpreter) else None
        return Question(lambda: read_interpreter(version, url, named, self.ca_bundle))

    def choose(self, states: list[InterpreterState]) -> Settings:
        """Return the settings with every input decided; what the user set stays while valid."""
        current = self.settings.cpython
        chosen = {s.version: choose_interpreter(s, current.get(s.version)) for s in states}
        others = {version: way for version, way in current.items() if version not in chosen}
        made = [name for name in self.systems if self._image(name) is None]
        base = {**self.settings.base, **{name: self.settings.base_for(name) for name in made}}
        cpython = {**others, **{version: way for version, way in chosen.items() if way}}
        return self.settings.model_copy(
            update={"base": base, "cpython": cpython, "ca_bundle": self.ca_bundle}
        )

    def _image(self, name: str) -> str | None:
        return self.matrix.operating_systems[name].image

    def check_registries(self, engine: EngineState) -> Iterator[Finding]:
        """Yield a row for each base image that comes from a registry."""
        buildx = engine.buildx.path if engine.buildx else None
        for name in self.systems:
            base = self.settings.base_for(name, self._image(name))
            if isinstance(base, RegistryBase):
                yield check_registry(name, base.image, buildx, engine.host, self.programs)

    def check_interpreters(
        self, states: list[InterpreterState], choice: Settings, in_force: Settings
    ) -> Iterator[Finding]:
        """Yield a row for each CPython; builds go by the settings that are ``in_force``."""
        known = {state.version: state for state in states}
        for version in self.pythons:
            if version in known:
                way = choice.cpython.get(version)
                recorded = in_force.interpreter_for(version) == way
                yield check_interpreter(
                    known[version], way, self.machine, self.programs, recorded=recorded
                )
            else:
                yield skipped(f"CPython {version}", "from conda packages, each by its own address")
