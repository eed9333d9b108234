"""What `subscriptions/listen` tells of beside tasks: lists that changed, resources that were updated.

A kind is honoured, and advertised, if and only if somebody here announces it: the catalog file the list of tools, a
tasks module's bus the lists and resources that this module serves. An announcement means "look again" and no more, so
those that a client has not been sent yet merge: however slowly it reads, one of each is all that waits for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from mcp.server.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    SubscriptionBus,
)
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import event_matches
from mcp_types import INVALID_PARAMS, SubscriptionFilter

from bridge.resources import is_ours

log = logging.getLogger(__name__)

TOOLS: Final = "toolsListChanged"
RESOURCES: Final = "resourceSubscriptions"

MODULE_KINDS: Final[Mapping[str, str]] = {
    "promptsListChanged": "prompts/list",
    "resourcesListChanged": "resources/list",
    RESOURCES: "resources/read",
}
"""The kinds that a tasks module may announce, and what it has to serve for each."""

MAX_RESOURCES: Final = 1000
"""Resources of one subscription."""


class Announcements:
    """What one stream was not told yet."""

    def __init__(self, honoured: Mapping[str, Any]) -> None:
        self._honoured = SubscriptionFilter.model_validate(honoured, by_name=False)
        self._uris = frozenset(honoured.get(RESOURCES, ()))
        self._waiting = dict[ServerEvent, None]()
        self._some = asyncio.Event()

    def offer(self, event: ServerEvent) -> None:
        """Have `event` told, if the stream asked for it."""
        if event_matches(self._honoured, self._uris, event):
            self._waiting[event] = None
            self._some.set()

    async def next(self) -> ServerEvent:
        """The one that waits for the longest time; it may be announced again from now on."""
        await self._some.wait()
        event = next(iter(self._waiting))
        del self._waiting[event]
        if not self._waiting:
            self._some.clear()
        return event


class Announcer:
    """Brings announcements to the streams. One per process."""

    def __init__(self, kinds: Collection[str]) -> None:
        """`kinds` are the members of a filter that are honoured."""
        self.kinds: Final = frozenset(kinds)
        self._streams = set[Announcements]()

    def honoured(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """What of a filter will be told, as the acknowledgement names it.

        Raises MCPError: -32602, it names too many resources.
        """
        honoured: dict[str, Any] = {kind: True for kind in sorted(self.kinds - {RESOURCES}) if wanted.get(kind) is True}
        uris = list(dict.fromkeys(wanted.get(RESOURCES) or ())) if RESOURCES in self.kinds else []
        if len(uris) > MAX_RESOURCES:
            raise MCPError(
                INVALID_PARAMS, f"One subscription takes at most {MAX_RESOURCES} resources; open another one"
            )
        if served := [uri for uri in uris if not is_ours(uri)]:
            honoured[RESOURCES] = served
        return honoured

    @contextmanager
    def listening(self, honoured: Mapping[str, Any]) -> Iterator[Announcements]:
        """Whatever is announced within the context, of what is `honoured`."""
        stream = Announcements(honoured)
        self._streams.add(stream)
        try:
            yield stream
        finally:
            self._streams.discard(stream)

    def announce(self, event: ServerEvent) -> None:
        """Tell all streams that asked for it."""
        for stream in self._streams:
            stream.offer(event)

    @contextmanager
    def hearing(self, bus: SubscriptionBus) -> Iterator[None]:
        """Pass on what a tasks module publishes on `bus`."""
        unsubscribe = bus.subscribe(self._of_module)
        try:
            yield
        finally:
            try:
                unsubscribe()
            except Exception:  # it is not ours, and must not be in the way of what else has to end
                log.exception("subscriptions.bus_failed")

    def _of_module(self, event: object) -> None:
        """Never raises: the module is in the middle of its own work."""
        if isinstance(event, PromptsListChanged | ResourcesListChanged) or (
            isinstance(event, ResourceUpdated) and isinstance(event.uri, str)
        ):
            self.announce(event)
        else:  # the list of tools is the bridge's
            log.warning("subscriptions.not_announced", extra={"event": repr(event)[:200]})
