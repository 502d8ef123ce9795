"""The options that select images of the matrix, written once for all commands that have them."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from imgbuild.cli import options
from imgbuild.project import Project

if TYPE_CHECKING:
    from imgbuild.matrix.images import Image


@dataclass(frozen=True)
class Chosen:
    """What the selection options of a command line say."""

    tf: list[str] | None = None
    cpu: bool = False
    gpu: bool = False
    stack: str | None = None
    mpi: str | None = None
    everything: bool = False
    as_documented: bool = False
    name: list[str] | None = None

    @property
    def any(self) -> bool:
        """Whether any of them was given."""
        return self != Chosen()

    @property
    def or_everything(self) -> "Chosen":
        """The same; where no version and no image is named, the whole matrix is meant."""
        return replace(self, everything=self.everything or not (self.tf or self.name))

    def images(self, project: Project) -> "tuple[Image, ...]":
        """Return the images that are meant.

        Raises:
            InputError: there are none, or options contradict each other.

        """
        return options.select(
            project,
            self.tf,
            self.cpu,
            self.gpu,
            self.stack,
            self.mpi,
            self.everything,
            self.as_documented,
            names=self.name,
        )


def _selection(
    tf: options.TfOption = None,
    cpu: options.CpuOption = False,
    gpu: options.GpuOption = False,
    stack: options.StackOption = None,
    mpi: options.MpiOption = None,
    everything: options.AllOption = False,
    as_documented: options.AsDocumentedOption = False,
    name: options.NameOption = None,
) -> Chosen:
    return Chosen(tf, cpu, gpu, stack, mpi, everything, as_documented, name)


def selecting(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that has the selection options in place of its parameter ``chosen``."""
    return _with_options(command, ())


def selecting_without(option: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator like `selecting`, whose commands lack one option: a field of `Chosen`."""
    return lambda command: _with_options(command, (option,))


def _with_options(command: Callable[..., None], lacking: Sequence[str]) -> Callable[..., None]:
    """Return the command; Typer reads its parameters from its signature and its annotations."""
    known = inspect.signature(_selection).parameters
    shared = {name: one for name, one in known.items() if name not in lacking}
    parameters = []
    for parameter in inspect.signature(command).parameters.values():
        own = shared.values() if parameter.name == "chosen" else (parameter,)
        parameters += [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own]

    signature = inspect.Signature(parameters)

    def run(**given: object) -> None:
        bound = signature.bind(**given)
        bound.apply_defaults()
        all_of_it = dict(bound.arguments)
        chosen = _selection(**{name: all_of_it.pop(name) for name in shared})
        command(chosen=chosen, **all_of_it)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = signature  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run
