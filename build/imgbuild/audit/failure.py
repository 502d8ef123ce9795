"""Why an artifact could not be looked at."""

from imgbuild.errors import MachineError


class ReadError(MachineError):
    """An artifact answered with something that cannot be what it should be. Exit code 3."""


class UnreachableError(ReadError):
    """Nothing answered: no name, no connection, no time. ``cause`` is its short form."""

    def __init__(self, paragraph: str, cause: str) -> None:
        super().__init__(paragraph)
        self.cause = cause


class StatusError(ReadError):
    """The server answered, with an HTTP status that is no success."""

    def __init__(self, paragraph: str, status: int) -> None:
        super().__init__(paragraph)
        self.status = status
