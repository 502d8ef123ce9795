"""``imgbuild.local.yaml``: where this machine takes its inputs from. Never part of the matrix."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from imgbuild.strict_yaml import load_model
from imgbuild.values import AbsolutePath, DigestReference, EngineHost, PythonVersion


class Strict(BaseModel):
    """Frozen, and unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class EngineSettings(Strict):
    """Which engine builds. ``None`` means: the Docker client's own choice."""

    host: EngineHost | None = None
    buildx: AbsolutePath | None = None


class BootstrapBase(Strict):
    """The base image is made here, from the distribution's archive, by mmdebstrap."""

    source: Annotated[Literal["bootstrap"], Field(alias="from")] = "bootstrap"


class RegistryBase(Strict):
    """The base image is pulled, by digest."""

    source: Annotated[Literal["registry"], Field(alias="from")]
    image: DigestReference


class SourceInterpreter(Strict):
    """CPython is compiled from its pinned source in a stage of its own."""

    source: Annotated[Literal["source"], Field(alias="from")] = "source"


class PrefixInterpreter(Strict):
    """CPython is taken from a prefix of this machine (pyenv, a build of one's own)."""

    source: Annotated[Literal["prefix"], Field(alias="from")]
    path: AbsolutePath


Base = Annotated[BootstrapBase | RegistryBase, Field(discriminator="source")]
Interpreter = Annotated[SourceInterpreter | PrefixInterpreter, Field(discriminator="source")]


class Settings(Strict):
    """Everything ``imgbuild.local.yaml`` may say; an absent file means all defaults."""

    engine: EngineSettings = EngineSettings()
    base: dict[str, Base] = Field(default_factory=dict)
    cpython: dict[PythonVersion, Interpreter] = Field(default_factory=dict)
    ca_bundle: AbsolutePath | None = None

    def base_for(self, os_name: str) -> Base:
        """Return where the base image of an operating system comes from."""
        return self.base.get(os_name, BootstrapBase())

    def interpreter_for(self, version: str) -> Interpreter:
        """Return where one CPython version comes from."""
        return self.cpython.get(version, SourceInterpreter())


def load_settings(path: Path) -> Settings:
    """Return the settings in ``path``, or the defaults if there is no such file.

    Raises:
        InputError: the file is not YAML or does not fit; every fault with its line and column.

    """
    return load_model(path, Settings) if path.exists() else Settings()
