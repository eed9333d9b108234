"""The loop itself, in this process and with handlers that do as they are told."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from bridge import stdio
from bridge.jsonrpc import Message, parse_message
from bridge.lines import Channel
from tests.stdio.client import PipeClient, call, cancelled, request
from tests.support import eventually
from tests.transport.toy import Toy

INTERRUPTED = {
    "code": -32603,
    "message": "The request was interrupted. Send it again.",
    "data": {"retryAfterMs": 1000},
}


@dataclass
class Loop:
    """A loop that runs, the toy that it serves, and the client at its other end."""

    toy: Toy
    client: PipeClient
    stop: asyncio.Event
    serving: asyncio.Task[None]
    output: asyncio.ReadTransport

    async def over(self) -> None:
        """Wait for its end."""
        async with asyncio.timeout(20):
            await self.serving

    async def started(self, count: int = 1) -> None:
        """Wait until so many handlers run."""

        async def running() -> bool:
            return len(self.toy.started) >= count

        await eventually(running, what=f"{count} handlers")


@pytest.fixture
async def loop() -> AsyncIterator[Loop]:
    (given, giving), (reading, writing) = os.pipe(), os.pipe()
    running = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=2**24)
    output, _ = await running.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(reading, "rb", 0)
    )
    transport, protocol = await running.connect_write_pipe(
        lambda: asyncio.streams.FlowControlMixin(), os.fdopen(giving, "wb", 0)
    )
    client = PipeClient(reader, asyncio.StreamWriter(transport, protocol, None, running))
    toy, stop = Toy(), asyncio.Event()
    channel = Channel(given, writing)
    serving = asyncio.create_task(stdio.serve_stdio(toy.server(), toy.older(), channel, stop, max_line_bytes=2**20))
    yield Loop(toy, client, stop, serving, output)
    toy.release.set()
    client.end_input()
    await serving
    os.close(writing)
    if not output.is_closing():
        await client.reading
    output.close()
    await asyncio.sleep(0.01)
    os.close(given)


async def test_a_stop_gives_what_is_in_flight_its_grace_and_reads_nothing_more(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stdio, "STOP_GRACE_SECONDS", 15.0)
    await loop.client.send(call("wait", {"n": 1}, id=1))
    await loop.started()
    loop.stop.set()
    await asyncio.sleep(0.05)
    await loop.client.send(call("echo", {"n": 2}, id=2))
    await asyncio.sleep(0.05)
    loop.toy.release.set()
    await loop.over()
    assert (await loop.client.response(1))["result"]["structuredContent"] == {"n": 1}
    assert len(loop.client.messages) == 1
    assert (loop.toy.started, loop.toy.undone) == (["wait"], [])


async def test_a_stop_during_the_grace_at_the_end_of_input_shortens_it(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stdio, "END_OF_INPUT_GRACE_SECONDS", 3600.0)
    monkeypatch.setattr(stdio, "STOP_GRACE_SECONDS", 0.1)
    await loop.client.send(call("wait", id=1))
    await loop.started()
    loop.client.end_input()
    await asyncio.sleep(0.05)
    assert not loop.serving.done()
    loop.stop.set()
    await loop.over()
    assert (await loop.client.response(1))["error"] == INTERRUPTED
    assert loop.toy.undone == ["wait"]


async def test_a_handler_that_gives_itself_up_is_answered(loop: Loop) -> None:
    assert (await loop.client.ask(call("self_cancel")))["error"] == INTERRUPTED

    async def undone() -> bool:
        return loop.toy.undone == ["self_cancel"]

    await eventually(undone, what="its undoing")


async def test_a_handler_that_ignores_its_cancellation_says_nothing_more(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(stdio, "WIND_DOWN_SECONDS", 0.1)
    await loop.client.send(call("stubborn", id=1))
    await loop.started()
    await loop.client.send(cancelled(1))

    async def undone() -> bool:
        return loop.toy.undone == ["stubborn"]

    await eventually(undone, what="its undoing")
    assert "exchange.cancellation_ignored" in caplog.text
    loop.toy.release.set()
    await loop.client.ask(request("tools/list"))
    assert loop.toy.ended == ["stubborn"]
    assert loop.client.responses(1) == []
    assert "stdio.bug" not in caplog.text


async def test_a_handler_that_ignores_the_end_does_not_hold_it_up(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "END_OF_INPUT_GRACE_SECONDS", 0.1)
    monkeypatch.setattr(stdio, "CUT_OFF_SECONDS", 0.1)
    await loop.client.send(call("stubborn"))
    await loop.started()
    loop.client.end_input()
    await loop.over()
    assert loop.toy.undone == ["stubborn"]


async def test_a_cancelled_request_sends_no_more_progress(loop: Loop) -> None:
    message = call("progress", {"steps": 3, "wait": True}, id=1)
    message["params"]["_meta"]["progressToken"] = "t"
    await loop.client.send(message)

    async def reported() -> bool:
        return len(loop.client.messages) == 3

    await eventually(reported, what="three reports")
    await loop.client.send(cancelled(1))
    await loop.client.ask(request("tools/list"))
    (exchange,) = loop.toy.exchanges
    await exchange.progress(4)
    await loop.client.ask(request("tools/list"))
    assert len(loop.client.messages) == 5
    assert loop.toy.cancelled == ["progress"]


async def test_a_result_that_cannot_be_delivered_is_undone(loop: Loop) -> None:
    await loop.client.send(call("wait"), call("task", id="told"))
    await loop.client.response("told")
    loop.output.close()
    await asyncio.sleep(0.01)
    loop.toy.release.set()
    await loop.over()
    assert loop.toy.undone == ["wait"]


async def test_more_requests_than_can_be_in_flight_are_refused_and_a_cancel_still_gets_through(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stdio, "MAX_IN_FLIGHT", 3)
    await loop.client.send(*(call("wait", id=number) for number in range(4)))
    refused = (await loop.client.response(3))["error"]
    assert (refused["code"], refused["data"]) == (-32603, {"retryAfterMs": 1000})
    await loop.client.send(cancelled(1), call("wait", id=4))
    await loop.started(4)
    loop.toy.release.set()
    for number in (0, 2, 4):
        assert "result" in await loop.client.response(number)
    assert loop.client.responses(1) == []


async def test_reading_waits_for_a_client_that_does_not_read(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = 0

    def counted(*arguments: Any, **options: Any) -> Message:
        nonlocal taken
        taken += 1
        return parse_message(*arguments, **options)

    monkeypatch.setattr(stdio, "_MAX_UNDER_WAY", 50)
    monkeypatch.setattr(stdio, "parse_message", counted)
    loop.output.pause_reading()
    count = 5000
    await loop.client.send(b"hello\n" * count)
    before = -1
    while taken != before:
        before = taken
        await asyncio.sleep(0.2)
    assert 0 < taken < count
    loop.output.resume_reading()
    await loop.client.unaddressed(count)
    assert taken == count
