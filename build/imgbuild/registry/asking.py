"""Questions to one repository: authorized as its registry wants it, and tried again."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count
from typing import TypeVar

from imgbuild.errors import MachineError
from imgbuild.registry.authorization import Authorization
from imgbuild.registry.credentials import FindCredentials
from imgbuild.registry.exchange import Answer, Exchange, Question, same_site
from imgbuild.registry.faults import gave_up, passing
from imgbuild.registry.file_content import FileContent
from imgbuild.registry.patience import PassingError, Patience
from imgbuild.registry.protocol import LARGEST_ANSWER
from imgbuild.registry.repository import RepositoryName

T = TypeVar("T")
Say = Callable[[str], None]


class Asking:
    """Asks a repository; threads may share it."""

    def __init__(
        self,
        name: RepositoryName,
        exchange: Exchange,
        patience: Patience,
        find_credentials: FindCredentials,
        say: Say,
    ) -> None:
        self.name = name
        self.say = say
        self._exchange = exchange
        self._patience = patience
        self._authorization = Authorization(name, exchange, find_credentials)
        self._scheme = "" if name.local else "https"
        self._lock = threading.Lock()
        self._closed = threading.Event()

    def close(self) -> None:
        """Close the connections; who waits for another try gives up."""
        self._closed.set()
        self._exchange.close()

    def persistently(self, what: str, work: Callable[[], T]) -> T:
        """Return what ``work`` returns, after as many tries as it takes.

        ``work`` is begun anew each time, so it must be safe to repeat; ``what`` names it.

        Raises:
            MachineError: it failed in every try, or asked for a longer wait than is kept.

        """
        for failed in count(1):
            try:
                return work()
            except PassingError as error:
                if self._patience.ends(failed, error.wait) or self._closed.is_set():
                    raise gave_up(self.name, what, error, failed) from None
                self._wait(what, error, failed)
        raise AssertionError(what)

    def ask(  # noqa: PLR0913 - the parts of a request
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        content: bytes | FileContent | None = None,
        write: bool = False,
        most: int = LARGEST_ANSWER,
    ) -> Answer:
        """Return the answer to one request; ``path`` is below the repository, or an address.

        ``most`` bytes are read of it. A refusal (401) is answered with one new login or token.

        Raises:
            PassingError: there was no answer, or 429, or a server error.
            CheckFailedError: there is no login, or it is wrong.

        """
        url = path if "://" in path else self.address(path)
        question = Question(method, url, headers or {}, content, most=most)
        if not same_site(url, self.address("")):
            answer = self._exchange.ask(question)  # another site: no login of this one
        else:
            answer = self._authorized(question, write=write)
        fault = passing(answer)
        if fault:
            raise fault
        return answer

    def address(self, path: str) -> str:
        """Return the address of something of the repository, such as ``/tags/list``."""
        return f"{self._root()}/v2/{self.name.path}{path}"

    def _authorized(self, question: Question, *, write: bool) -> Answer:
        header = self._authorization.header(write=write)
        answer = self._exchange.ask(replace(question, authorization=header))
        if answer.status != 401:
            return answer
        challenge = answer.headers.get("WWW-Authenticate", "")
        header = self._authorization.renew(challenge, header, write=write)
        answer = self._exchange.ask(replace(question, authorization=header))
        if answer.status == 401:
            raise self._authorization.reject()
        return answer

    def _root(self) -> str:
        with self._lock:
            if not self._scheme:
                self._scheme = self._spoken()
            return f"{self._scheme}://{self.name.registry}"

    def _spoken(self) -> str:
        """Return the scheme of a registry on this machine: as engines do, https is tried first."""
        try:
            self._exchange.ask(Question("GET", f"https://{self.name.registry}/v2/"))
        except PassingError as error:
            if "Connection refused" in str(error):
                raise
            status = self._exchange.ask(Question("GET", f"http://{self.name.registry}/v2/")).status
            # What servers say that want TLS; nothing of HTTP's own is wrong with this question.
            if status == 400:
                raise
            return "http"
        return "https"

    def _wait(self, what: str, error: PassingError, failed: int) -> None:
        seconds = self._patience.seconds(failed, error.wait)
        self.say(
            f"{self.name}: {what}: {error}. Again in {seconds:.1f} s "
            f"({failed} of {self._patience.attempts} tries)."
        )
        if self._closed.wait(seconds):
            raise MachineError(f"{self.name}: {what} was given up: {error}.")
