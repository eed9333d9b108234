"""How much each owner may have going on in this process at a time: streams, tasks told of on them, calls that wait.

Each holds a connection and memory for as long as it lasts, so it is refused before it begins, and its place is free
again when it ends, however it ends. Numbers, not queues: a refused client comes again, at this process or another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from bridge.too_many import TooMany
from workflows.kit.contract import Principal


class Places:
    """At most `limit` for each key; any number if that is 0."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._taken = Counter[str]()

    def has_room(self, key: str, number: int = 1) -> bool:
        """Whether `number` more can be taken."""
        return not self.limit or self._taken[key] + number <= self.limit

    @contextmanager
    def taken(self, key: str, number: int = 1) -> Iterator[None]:
        """Take them for as long as the context lasts, whether or not there is room."""
        self._taken[key] += number
        try:
            yield
        finally:
            self._taken[key] -= number
            if self._taken[key] <= 0:
                del self._taken[key]


class StreamPlaces:
    """The open streams of subscriptions, and the tasks that they name."""

    def __init__(self, *, streams: int, per_owner: int, tasks_per_owner: int) -> None:
        """At most so many streams in all, and of one owner, and tasks of one owner over all its streams; 0: any."""
        self._all = Places(streams)
        self._streams = Places(per_owner)
        self._tasks = Places(tasks_per_owner)

    @contextmanager
    def opened(self, owner: Principal, tasks: int) -> Iterator[None]:
        """A stream that asks for so many tasks, for as long as the context lasts.

        Raises:
            TooMany: There is no place for it.
        """
        key = owner.identity
        if not self._streams.has_room(key):
            raise TooMany(f"At most {self._streams.limit} subscriptions may be open at a time; end one, or merge two")
        if not self._tasks.has_room(key, tasks):
            raise TooMany(
                f"At most {self._tasks.limit} tasks may be subscribed to at a time; read the others with tasks/get"
            )
        if not self._all.has_room(""):
            raise TooMany("This server has no room for another subscription; try again, or read with tasks/get")
        with self._all.taken(""), self._streams.taken(key), self._tasks.taken(key, tasks):
            yield


class WaitingCalls:
    """Calls whose callers wait for a result or a question."""

    def __init__(self, per_owner: int) -> None:
        self._places = Places(per_owner)

    def has_room(self, owner: Principal) -> bool:
        """Whether one more may wait."""
        return self._places.has_room(owner.identity)

    @contextmanager
    def waiting(self, owner: Principal) -> Iterator[None]:
        """A call that waits, for as long as the context lasts.

        Raises:
            TooMany
        """
        if not self.has_room(owner):
            raise TooMany(
                f"At most {self._places.limit} calls may wait for their result at a time; try again when one has "
                "ended, or declare the extension io.modelcontextprotocol/tasks to get a task instead of waiting"
            )
        with self._places.taken(owner.identity):
            yield
