"""The catalog file while the bridge runs: what it says now is what is offered.

Its files are looked at, not listened to: a few stats each half second cost nothing, and see a change whichever way a
file was replaced. A change is read and checked in a thread, and taken as a whole once the files have held still, so
that neither half a file nor one that is away for a moment counts. What cannot be used changes nothing: the tools
offered before stay, the log says why once, and the next change is tried again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from bridge.catalog import Catalog
from bridge.catalog_file import ReadText, read_text
from bridge.settings import SettingsError

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 0.5
"""Between two looks at the files."""

STILL_SECONDS: Final = 0.2
"""How long they have to stay as they were read."""

_Mark = tuple[int, ...] | None


class CatalogFiles:
    """A catalog, and the files that it is made of."""

    def __init__(self, catalog_from: Callable[[ReadText], Catalog]) -> None:
        """`catalog_from` makes the catalog, and raises SettingsError; it reads every file by what it is given."""
        self._catalog_from = catalog_from
        self._read = dict[Path, _Mark]()

    def read(self) -> Catalog:
        """The catalog as it is now.

        Raises:
            SettingsError: It cannot be used.
        """
        read = self._read = {}

        def text(file: Path) -> str:
            read[file] = _mark(file)  # before it is read: a change in the middle will show
            return read_text(file)

        return self._catalog_from(text)

    def changed(self) -> bool:
        """Whether one of the files is another one than was read last."""
        return any(_mark(file) != mark for file, mark in self._read.items())

    @asynccontextmanager
    async def followed(self, adopt: Callable[[Catalog], None]) -> AsyncIterator[None]:
        """Call `adopt` with the catalog after each change, within the context."""
        following = asyncio.create_task(self._follow(adopt), name="catalog")
        try:
            yield
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    async def _follow(self, adopt: Callable[[Catalog], None]) -> None:
        reported: str | None = None
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if not await asyncio.to_thread(self.changed):
                continue
            outcome = await self._settled()
            if isinstance(outcome, Catalog):
                reported = None
                adopt(outcome)
                log.info("catalog.reloaded", extra={"tools": len(list(outcome))})
            elif outcome != reported:
                reported = outcome
                log.error("catalog.unusable: %s; the tools offered before stay", outcome)

    async def _settled(self) -> Catalog | str:
        """The catalog, or what is wrong with it, once its files hold still."""
        while True:
            outcome = await asyncio.to_thread(self._outcome)
            await asyncio.sleep(STILL_SECONDS)
            if not await asyncio.to_thread(self.changed):
                return outcome

    def _outcome(self) -> Catalog | str:
        try:
            return self.read()
        except SettingsError as problem:
            return str(problem)
        except Exception:  # a fault that one file brings to light must not end the watch for all that follow
            log.exception("catalog.bug")
            return "the catalog cannot be read"


def _mark(file: Path) -> _Mark:
    """What differs between two files at one path, however the second one got there; None if there is none."""
    try:
        found = file.stat()
    except (OSError, ValueError):  # the second: no path at all
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
