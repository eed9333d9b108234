"""What the benchmark's figures rest on: the direction of its bars, its reader of streams, Temporal's counters."""

from __future__ import annotations

import asyncio
import json

import pytest
from temporalio.client import Client

from bridge.dev_server import LOOPBACK, DevServer
from tests.bench.accounts import Accounts, find_metrics_port
from tests.bench.bare import BareSession
from tests.bench.measure import Bar, verdict
from tests.bench.sessions import BenchError
from tests.bench.wire import McpServer, McpStream
from tests.support import eventually, unique

ACKNOWLEDGED = {
    "jsonrpc": "2.0",
    "method": "notifications/subscriptions/acknowledged",
    "params": {"notifications": {"taskIds": ["t"]}},
}
TOLD = {"jsonrpc": "2.0", "method": "notifications/tasks", "params": {"taskId": "t", "status": "working"}}


def test_a_rate_must_be_high_and_a_latency_low() -> None:
    results = {
        "ours": [{"p50": 4.0, "rate": 30.0}, {"p50": 6.0, "rate": 50.0}],
        "peer": [{"p50": 10.0, "rate": 10.0}, {"p50": 10.0, "rate": 10.0}],
    }
    latency = verdict(Bar("ours", "p50", 0.4, "peer"), results)
    rate = verdict(Bar("ours", "rate", 2.0, "peer"), results)
    assert (latency.value, latency.low, latency.high, latency.met) == (0.5, 0.4, 0.6, False)
    assert (rate.value, rate.low, rate.high, rate.met) == (4.0, 3.0, 5.0, True)


def test_a_machine_that_is_slow_for_a_while_does_not_decide_a_bar() -> None:
    ours = [{"rate": rate} for rate in (90.0, 90.0, 45.0, 45.0, 45.0)]
    bare = [{"rate": rate} for rate in (100.0, 100.0, 100.0, 50.0, 50.0)]
    assert verdict(Bar("ours", "rate", 0.85, "bare"), {"ours": ours, "bare": bare}).value == 0.9


@pytest.mark.parametrize("size", [1, 7, 10_000])
async def test_messages_are_found_wherever_chunks_end(size: int) -> None:
    events = b"".join(b"event: message\ndata: %s\n\n: keep-alive\n\n" % encoded(m) for m in (ACKNOWLEDGED, TOLD))
    async with asyncio.timeout(20), await answering(chunks(events, size)) as server:
        stream = await McpStream.connect(McpServer(f"http://{LOOPBACK}:{port_of(server)}/mcp"))
        await stream.listen(["t"])
        assert await stream.task() == TOLD["params"]
        with pytest.raises(BenchError, match="the stream ended"):
            await stream.task()
        await stream.close()


async def test_temporal_counts_what_clients_call(temporal: DevServer) -> None:
    client = await Client.connect(temporal.address)
    accounts = Accounts({"temporal": [temporal.process.pid]}, await find_metrics_port(temporal.process.pid))
    session = BareSession(client, "approve", unique("nobody"))
    calls, processor = await accounts.calls(), accounts.processor()
    task_id = await session.create()
    for _ in range(20):
        await session.describe(task_id)
    spent = accounts.processor_since(processor, 1)

    async def all_counted() -> bool:
        # At least: tests of other modules may use the same Temporal
        counted = await accounts.calls_since(calls, 10)
        assert counted["rpcs"] == pytest.approx(sum(figure for name, figure in counted.items() if name != "rpcs"))
        started, described = (counted.get(f"rpc {call}WorkflowExecution", 0.0) for call in ("Start", "Describe"))
        return started >= 0.1 and described >= 2.0

    await eventually(all_counted, what="one start and 20 describes, each by tenths")
    assert spent["cpu temporal"] > 0


def encoded(message: object) -> bytes:
    return json.dumps(message).encode()


def chunks(body: bytes, size: int) -> bytes:
    """As HTTP sends it in chunks of this size, the last one included."""
    parts = [body[start : start + size] for start in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in [*parts, b""])


async def answering(body: bytes) -> asyncio.Server:
    """A server that answers the first request of each connection with these chunks."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n" + body)
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    return await asyncio.start_server(answer, LOOPBACK, 0)


def port_of(server: asyncio.Server) -> int:
    port: int = server.sockets[0].getsockname()[1]
    return port
