"""Looking at everything that imgbuild made, and removing what was chosen of it."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from imgbuild.build.context import image_locks
from imgbuild.cleaning.build_cache import find_build_cache
from imgbuild.cleaning.busy import busy_images
from imgbuild.cleaning.disk import find_caches
from imgbuild.cleaning.finding import Finding
from imgbuild.cleaning.images import Images, Wanted
from imgbuild.cleaning.leftovers import Place, find_leftovers
from imgbuild.cleaning.state import find_locks, find_logs, find_reports, find_work
from imgbuild.dockerfile.labels import NAME
from imgbuild.engine.client import Engine
from imgbuild.errors import ImgbuildError
from imgbuild.suites.container import place_of
from imgbuild.suites.store import ReportStore


@dataclass(frozen=True)
class Survey:
    """Where to look: an engine, if there is one, and this user's cache and state.

    ``elsewhere`` looks at what other state folders and other checkouts left on the engine too.
    ``names`` finds what pushes left on the engine, of which nothing is known here; it is told which
    processes are at work.
    """

    engine: Engine | None
    host: str | None
    state: Path
    cache: Path
    wanted: Callable[[], Wanted] = Wanted
    elsewhere: bool = False
    names: Callable[[Engine, dict[str, str]], Iterable[Finding]] = lambda _engine, _busy: ()

    def look(self) -> tuple[Finding, ...]:
        """Return all that imgbuild made and could be removed, in the order of removing.

        Raises:
            MachineError: the engine cannot be reached.

        """
        return tuple(self._found())

    def _found(self) -> Iterator[Finding]:
        now = partial(busy_images, self.state)
        busy = now()
        if self.engine:
            place = Place(place_of(self.state), busy, self.elsewhere)
            yield from find_leftovers(self.engine, place)
            yield from self.names(self.engine, busy)
            known = ReportStore(self.state / "reports").knows
            images = Images(self.engine, self.wanted, busy, self.elsewhere, known, now)
            yield from images.find()
            yield from find_build_cache(self.engine)
            yield from find_reports(self.state, [one.id for one in self.engine.images(NAME)])
        yield from find_caches(self.cache, busy, now)
        yield from find_work(self.state, self.cache)
        yield from find_logs(self.state)
        yield from find_locks(self.state)

    def remove(self, findings: Iterable[Finding]) -> Iterator[Finding]:
        """Remove the findings and yield each as it then is: ``kept`` says why it is still there."""
        for finding in findings:
            yield replace(finding, kept=finding.kept or self._removed(finding))

    def _removed(self, finding: Finding) -> str | None:
        """Return why it could not be removed, or nothing."""
        try:
            with ExitStack() as stack:
                if finding.image:
                    locks = self.state / "locks"
                    stack.enter_context(image_locks([finding.image], self.host, locks))
                return None if finding.remove() else "it is in use"
        except (ImgbuildError, OSError) as error:
            return str(error)
