"""Streams, clients that leave, results that do not arrive, and servers that stop."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import struct
import time
from collections.abc import AsyncIterator

import pytest

from bridge import http, sse
from bridge.http import HttpSettings
from tests.transport.toy import Served, Wire, call, discover, eventually, serving

QUICK = HttpSettings(keep_alive_seconds=0.1)


@pytest.fixture
async def quick() -> AsyncIterator[Served]:
    """A server that soon loses patience with silence."""
    async with serving(QUICK) as running:
        yield running


def reset(wire: Wire) -> None:
    """Leave as a killed client does: with a reset."""
    sock = wire.writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wire.writer.transport.abort()


async def test_progress_opens_a_stream_that_ends_with_the_response(served: Served) -> None:
    async with served.connect() as wire:
        await wire.post(call("progress", {"steps": 3, "message": "m"}, progress="p", id="r"))
        response = await wire.response()
        assert response.status == 200
        assert response.headers["cache-control"] == "no-cache, no-transform"
        assert response.headers["x-accel-buffering"] == "no"
        assert b"id:" not in response.body
        *notifications, last = response.events
        assert notifications == [
            {
                "jsonrpc": "2.0",
                "method": "notifications/progress",
                "params": {"progressToken": "p", "progress": step, "total": 3, "message": "m"},
            }
            for step in range(3)
        ]
        assert (last["id"], last["result"]["resultType"]) == ("r", "complete")
        await wire.post(discover())
        assert (await wire.response()).status == 200
    assert served.toy.undone == []


async def test_each_notification_is_sent_when_it_is_made(served: Served) -> None:
    async with served.connect() as wire:
        await wire.post(call("progress", {"steps": 1, "wait": True}, progress=0))
        await wire.response_head()
        chunks = wire.chunks()
        assert json.loads((await anext(chunks)).split(b"data: ")[1])["params"] == {
            "progressToken": 0,
            "progress": 0,
            "total": 1,
        }
        served.toy.release.set()
        assert b'"result"' in await anext(chunks)


async def test_without_a_progress_token_there_is_no_stream(served: Served) -> None:
    assert (await served.post(call("progress", {"steps": 3}))).json["result"]["resultType"] == "complete"


async def test_progress_for_a_client_that_takes_only_json_is_dropped(served: Served) -> None:
    response = await served.post(call("progress", {"steps": 3}, progress=1), {"Accept": "application/json"})
    assert response.json["result"]["resultType"] == "complete"


async def test_text_cannot_forge_an_event(served: Served) -> None:
    forged = 'x\n\ndata: {"jsonrpc":"2.0","id":1,"result":{}}\n\n\u2028data: {}\u0085data: {}'
    response = await served.post(call("progress", {"steps": 1, "message": forged}, progress=1))
    naive = [line for line in response.body.decode().splitlines() if line.startswith("data: ")]
    assert len(naive) == 2
    assert response.events[0]["params"]["message"] == forged


async def test_silence_opens_a_stream_of_comments(quick: Served) -> None:
    async with quick.connect() as wire:
        await wire.post(call("wait"))
        assert (await wire.response_head())[1]["content-type"] == "text/event-stream"
        chunks = wire.chunks()
        assert [await anext(chunks) for _ in range(2)] == [b":\n\n", b":\n\n"]
        quick.toy.release.set()
        rest = b"".join([chunk async for chunk in chunks])
        assert json.loads(rest.split(b"data: ")[1])["id"] == 1


async def test_silence_does_not_stream_to_a_client_that_takes_only_json(quick: Served) -> None:
    async with quick.connect() as wire:
        await wire.post(call("wait"), {"Accept": "application/json"})
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await wire.reader.read(1)
        quick.toy.release.set()
        assert (await wire.response()).json["id"] == 1


async def test_an_error_after_the_stream_is_open_is_its_last_event(quick: Served) -> None:
    async with quick.connect() as wire:
        await wire.post(call("late_crash"))
        status, _ = await wire.response_head()
        quick.toy.release.set()
        body = b"".join([chunk async for chunk in wire.chunks()])
        assert (status, json.loads(body.split(b"data: ")[1])["error"]["code"]) == (200, -32603)


def _handlers() -> list[asyncio.Task[object]]:
    return [task for task in asyncio.all_tasks() if task.get_name() == "mcp-request"]


@pytest.mark.parametrize("leave", ["close", "reset"])
@pytest.mark.parametrize("streaming", [True, False])
async def test_a_client_that_leaves_cancels_its_handler_and_undoes_its_work(
    served: Served, leave: str, streaming: bool
) -> None:
    async with served.connect() as wire:
        await wire.post(call("progress", {"steps": 1, "wait": True}, progress=1 if streaming else None))
        await eventually(lambda: served.toy.started == ["progress"], "the handler runs")
        if streaming:
            await wire.response_head()
        if leave == "reset":
            reset(wire)
    await eventually(lambda: served.toy.undone == ["progress"], "the work is undone")
    assert served.toy.cancelled == ["progress"]
    await eventually(lambda: _handlers() == [], "the handler has ended")


async def test_a_client_that_leaves_in_the_middle_of_its_body_starts_nothing(served: Served) -> None:
    async with served.connect() as wire:
        await wire.send(wire.request(call("echo"))[:-5])
    assert (await served.post(discover())).status == 200
    assert served.toy.started == []


async def test_what_is_undone_is_undone_newest_first_and_once(served: Served) -> None:
    order: list[int] = []

    async def undo(step: int) -> None:
        order.append(step)
        if step == 1:
            raise RuntimeError("one failure does not stop the others")

    async with served.connect() as wire:
        await wire.post(call("wait"))
        await eventually(lambda: bool(served.toy.exchanges), "the handler runs")
        exchange = served.toy.exchanges[0]
        for step in range(3):
            exchange.on_undelivered(lambda step=step: undo(step))  # type: ignore[misc]
    await eventually(lambda: served.toy.undone == ["wait"], "the work is undone")
    assert order == [2, 1, 0]
    await exchange.undelivered()
    assert order == [2, 1, 0]


async def test_undoing_is_not_cut_short_by_a_server_that_stops() -> None:
    undone = asyncio.Event()
    undoing = asyncio.Event()

    async def undo() -> None:
        undoing.set()
        await asyncio.sleep(0.3)
        undone.set()

    async with serving(shutdown_timeout=0.05) as served, served.connect() as wire:
        await wire.post(call("wait"))
        await eventually(lambda: bool(served.toy.exchanges), "the handler runs")
        served.toy.exchanges[0].on_undelivered(undo)
        reset(wire)
        await undoing.wait()
        await served.runner.cleanup()
    await eventually(undone.is_set, "undoing ends")


async def test_a_handler_that_ignores_cancellation_does_not_keep_its_work_from_being_undone(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sse, "WIND_DOWN_SECONDS", 0.1)
    async with served.connect() as wire:
        await wire.post(call("stubborn"))
        await eventually(lambda: served.toy.started == ["stubborn"], "the handler runs")
    with caplog.at_level(logging.ERROR):
        await eventually(lambda: served.toy.undone == ["stubborn"], "the work is undone")
    assert "exchange.cancellation_ignored" in caplog.text
    served.toy.release.set()
    await eventually(lambda: _handlers() == [], "the handler has ended")


async def test_a_client_that_does_not_read_is_given_up() -> None:
    async with serving(HttpSettings(write_seconds=0.3)) as served, served.connect() as wire:
        await wire.post(call("flood", progress=1))
        await eventually(lambda: served.toy.undone == ["flood"], "the client is given up")
        assert served.toy.cancelled == ["flood"]
        with pytest.raises(ConnectionResetError):  # else the kernel would go on for it, with what is still unsent
            while await wire.reader.read(65536):
                pass


async def test_a_server_that_stops_interrupts_requests_and_undoes_their_work() -> None:
    settings = HttpSettings(keep_alive_seconds=0.05, shutdown_grace_seconds=0.1)
    async with serving(settings) as served, served.connect() as stream, served.connect() as plain:
        await stream.post(call("wait"))
        await stream.response_head()
        await plain.post(call("wait"), {"Accept": "application/json"})
        await eventually(lambda: len(served.toy.started) == 2, "both handlers run")
        started = time.monotonic()
        await served.runner.cleanup()
        assert time.monotonic() - started < 5
        body = b"".join([chunk async for chunk in stream.chunks()])
        error = json.loads(body.split(b"data: ")[1])["error"]
        assert (error["code"], error["data"]) == (-32603, {"retryAfterMs": 1000})
        assert (await plain.response()).error == (200, -32603, 1)
        assert await stream.is_closed()
        assert served.toy.undone == ["wait", "wait"]
        assert _handlers() == []


async def test_a_server_that_stops_lets_short_requests_end(quick: Served) -> None:
    async with quick.connect() as wire:
        await wire.post(call("wait"), {"Accept": "application/json"})
        await eventually(lambda: quick.toy.started == ["wait"], "the handler runs")
        stopping = asyncio.create_task(quick.runner.cleanup())
        asyncio.get_running_loop().call_later(0.1, quick.toy.release.set)
        assert (await wire.response()).json["result"]["resultType"] == "complete"
        await stopping
    assert quick.toy.undone == []


async def test_a_server_that_stops_does_not_wait_for_bodies(served: Served) -> None:
    async with served.connect() as wire:
        await wire.send(wire.request(call("echo"))[:-5])
        await eventually(lambda: requests_seen(served) == 1, "the body is awaited")
        started = time.monotonic()
        await served.runner.cleanup()
        assert time.monotonic() - started < 8
        assert (await wire.response()).status == 408


async def test_a_server_that_stops_does_not_wait_for_who_does_not_read(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "LAST_WRITES_SECONDS", 0.1)
    async with served.connect() as wire:
        await wire.post(call("flood", progress=1))
        await eventually(lambda: served.toy.started == ["flood"], "the client is sent more than it reads")
        async with asyncio.timeout(20):
            await served.runner.cleanup()
    assert served.toy.undone == ["flood"]


async def test_a_server_that_stops_starts_nothing_new() -> None:
    async with (
        serving(HttpSettings(shutdown_grace_seconds=10)) as served,
        served.connect() as one,
        served.connect() as two,
    ):
        await one.post(call("wait"))
        await two.post(call("wait_shortly"))
        await two.post(call("echo"))
        await eventually(lambda: len(served.toy.started) == 2, "both handlers run")
        stopping = asyncio.create_task(served.runner.cleanup())
        asyncio.get_running_loop().call_later(0.1, served.toy.short.set)
        assert (await two.response()).status == 200
        assert await two.is_closed()
        served.toy.release.set()
        assert (await one.response()).status == 200
        await stopping
    assert "echo" not in served.toy.started


def requests_seen(served: Served) -> int:
    server = served.runner.server
    assert server is not None
    return server.requests_count


async def test_a_thousand_exchanges_leave_no_task_behind(served: Served) -> None:
    before = len(asyncio.all_tasks())
    for _ in range(20):
        async with served.connect() as wire:
            for _ in range(50):
                await wire.post(call("progress", {"steps": 1}, progress=1))
                await wire.response()
    await eventually(lambda: len(asyncio.all_tasks()) <= before, "all tasks have ended")
