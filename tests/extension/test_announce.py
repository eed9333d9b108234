"""Announcements between who makes them and the streams: merged, lost nowhere, and undisturbed by a module's faults."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    PromptsListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)

from bridge.announce import Announcements, Announcer
from bridge.envelope import Peer
from bridge.exchange import Caller, Exchange
from bridge.identity import LOCAL
from bridge.listen import Subscriptions
from bridge.places import StreamPlaces
from bridge.tasks import Context, TaskParams
from bridge.watches import Watches
from tests.support import eventually

FILTER = {"toolsListChanged": True, "resourceSubscriptions": ["acme://one"]}
CALLER = Caller(identity=LOCAL, channel="http", peer=Peer(version="2026-07-28", capabilities={}))


async def waiting(stream: Announcements) -> list[ServerEvent]:
    """What a stream would be told now."""
    found = list[ServerEvent]()
    try:
        while True:
            found.append(await asyncio.wait_for(stream.next(), 0.05))
    except TimeoutError:
        return found


async def test_what_is_announced_while_nobody_reads_is_told_once_in_order() -> None:
    announcer = Announcer(FILTER)
    with announcer.listening(FILTER) as stream:
        for _ in range(1000):
            announcer.announce(ResourceUpdated("acme://one"))
            announcer.announce(ToolsListChanged())
            announcer.announce(ResourceUpdated("acme://two"))
            announcer.announce(PromptsListChanged())
        assert await waiting(stream) == [ResourceUpdated("acme://one"), ToolsListChanged()]
        announcer.announce(ToolsListChanged())
        assert await waiting(stream) == [ToolsListChanged()]
    announcer.announce(ToolsListChanged())
    assert await waiting(stream) == [], "a stream that has ended is forgotten"


async def test_a_change_while_the_acknowledgement_or_an_announcement_is_written_is_told_after_it() -> None:
    announcer = Announcer(FILTER)
    sent = list[str]()

    async def send(message: Mapping[str, Any]) -> None:
        if len(sent) < 3:
            announcer.announce(ToolsListChanged())
            announcer.announce(ToolsListChanged())
        await asyncio.sleep(0)
        sent.append(message["method"])

    params = {"notifications": {"toolsListChanged": True}}
    exchange = Exchange(request_id=1, params=params, caller=CALLER, send=send)
    context = cast(Context, SimpleNamespace(request=exchange, params=params))
    places = StreamPlaces(streams=0, per_owner=0, tasks_per_owner=0)
    subscriptions = Subscriptions(cast(Any, None), Watches(cast(Any, None)), announcer, places)
    listening = asyncio.create_task(subscriptions.listen(context, TaskParams.model_construct()))

    async def all_told() -> bool:
        return len(sent) == 4

    await eventually(all_told, what="the announcements")
    exchange.stopping.set()
    assert (await listening)["resultType"] == "complete"
    assert sent == ["notifications/subscriptions/acknowledged", *["notifications/tools/list_changed"] * 3]


class FailingBus(InMemorySubscriptionBus):
    """A bus that cannot be left."""

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        super().subscribe(listener)

        def unsubscribe() -> None:
            raise RuntimeError("no connection")

        return unsubscribe


async def test_a_bus_that_fails_at_the_end_is_not_in_the_way_of_it(caplog: pytest.LogCaptureFixture) -> None:
    announcer, bus = Announcer(FILTER), FailingBus()
    with announcer.listening(FILTER) as stream:
        with announcer.hearing(bus):
            await bus.publish(ResourceUpdated("acme://one"))
        assert await waiting(stream) == [ResourceUpdated("acme://one")]
    assert "subscriptions.bus_failed" in caplog.text


async def test_a_module_s_publisher_is_not_told_of_what_we_do_not_take(caplog: pytest.LogCaptureFixture) -> None:
    heard = list[Callable[[ServerEvent], None]]()

    class Bus:
        async def publish(self, event: ServerEvent) -> None:
            for listener in heard:
                listener(event)

        def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
            heard.append(listener)
            return heard.clear

    announcer, bus = Announcer(FILTER), Bus()
    with announcer.listening(FILTER) as stream, announcer.hearing(bus):
        for event in (ToolsListChanged(), cast(Any, object()), ResourceUpdated(cast(Any, ["acme://one"]))):
            await bus.publish(event)
        assert await waiting(stream) == []
    assert caplog.text.count("subscriptions.not_announced") == 3
    assert not heard
