"""What is measured, against what, and which ratio is the bar. All of a group's contenders take turns."""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final, Literal

from temporalio.client import Client

from tests.bench.bare import BareSession
from tests.bench.sessions import Session, cycle, parked, until
from tests.bench.wire import McpSession

TOOLS_QUEUE: Final = "mcp-tasks"
BARE_QUEUE: Final = "bench-bare"

Figure = Literal["p50", "p95", "rate"]
Sample = dict[Figure, float]
"""Of one turn: milliseconds at two percentiles, or operations a second."""

Operation = Callable[[], Awaitable[object]]


@dataclass(frozen=True)
class Contender:
    """One side of a comparison; `turn` works for about so many seconds."""

    name: str
    turn: Callable[[float], Awaitable[Sample]]


@dataclass(frozen=True)
class Bar:
    """`of` must reach `factor` times `against`: at most that many milliseconds, at least that many a second."""

    of: str
    figure: Figure
    factor: float
    against: str

    def met(self, ratio: float) -> bool:
        """Whether this ratio is good enough."""
        return ratio >= self.factor if self.figure == "rate" else ratio <= self.factor


@dataclass(frozen=True)
class Group:
    """Contenders that do the same work."""

    title: str
    seconds: float
    contenders: Sequence[Contender]
    bars: Sequence[Bar]


@dataclass(frozen=True)
class World:
    """What runs. `peer` is None if there is none; opened sessions are closed with `stack`."""

    ours: str
    peer: str | None
    temporal: Client
    stack: AsyncExitStack

    async def mcp(self, url: str, tool: str = "approve") -> McpSession:
        """A new client of an MCP server."""
        session = await McpSession.open(url, tool)
        self.stack.push_async_callback(session.close)
        return session

    def bare(self) -> BareSession:
        """A plain Temporal client of our workflow."""
        return BareSession(self.temporal, "approve", TOOLS_QUEUE)

    def bare_by_hand(self) -> BareSession:
        """A plain Temporal client of the workflow written by hand."""
        return BareSession(self.temporal, "bare_approve", BARE_QUEUE)

    def servers(self) -> list[tuple[str, str]]:
        """The MCP servers: name and URL."""
        return [*([("peer", self.peer)] if self.peer else []), ("ours", self.ours)]


def latency(operation: Operation) -> Callable[[float], Awaitable[Sample]]:
    """A turn of one client that does one after the other."""

    async def turn(seconds: float) -> Sample:
        taken: list[float] = []
        end = time.perf_counter() + seconds
        while (began := time.perf_counter()) < end:
            await operation()
            taken.append(time.perf_counter() - began)
        return percentiles(taken)

    return turn


def throughput(operations: Sequence[Operation]) -> Callable[[float], Awaitable[Sample]]:
    """A turn of as many clients as there are operations, each doing its own again and again."""

    async def turn(seconds: float) -> Sample:
        began = time.perf_counter()

        async def client(operation: Operation) -> int:
            for done in itertools.count():
                if time.perf_counter() - began >= seconds:
                    return done
                await operation()
            raise AssertionError

        done = sum(await asyncio.gather(*map(client, operations)))
        return {"rate": done / (time.perf_counter() - began)}

    return turn


def percentiles(seconds: Sequence[float]) -> Sample:
    """p50 and p95 in milliseconds."""
    if len(seconds) < 2:
        return {"p50": seconds[0] * 1e3, "p95": seconds[0] * 1e3}
    return {"p50": statistics.median(seconds) * 1e3, "p95": statistics.quantiles(seconds, n=20)[-1] * 1e3}


async def get_one(world: World) -> Group:
    """tasks/get, one client."""
    bare = world.bare()
    bare_task, _ = await parked(bare)
    contenders = [
        Contender("bare describe", latency(lambda: bare.describe(bare_task))),
        Contender("bare query", latency(lambda: bare.query(bare_task))),
    ]
    for name, url in world.servers():
        contenders.append(Contender(f"{name}, parked", latency(await _blind_poll(world, url))))
    working = await world.mcp(world.ours, "work")
    working_task = await working.create()
    contenders.append(Contender("ours, working", latency(lambda: working.poll_blindly(working_task))))
    finished = await world.mcp(world.ours)
    finished_task, key = await parked(finished)
    await finished.answer(finished_task, key)
    await until(finished, finished_task, "completed")
    contenders.append(Contender("ours, finished", latency(lambda: finished.poll_blindly(finished_task))))
    return Group("tasks/get, 1 client", 1.0, contenders, [Bar("ours, parked", "p50", 1.0, "peer, parked")])


async def get_many(world: World) -> Group:
    """tasks/get of parked tasks, 32 clients with a task each."""
    bare = world.bare()
    tasks = [(await parked(bare))[0] for _ in range(32)]
    contenders = [
        Contender("bare describe", throughput([lambda task=task: bare.describe(task) for task in tasks])),  # type: ignore[misc]
        Contender("bare query", throughput([lambda task=task: bare.query(task) for task in tasks])),  # type: ignore[misc]
    ]
    for name, url in world.servers():
        contenders.append(Contender(name, throughput([await _blind_poll(world, url) for _ in range(32)])))
    return Group("tasks/get of a parked task, 32 clients", 2.0, contenders, [Bar("ours", "rate", 2.0, "peer")])


async def create_one(world: World) -> Group:
    """tools/call that makes a task, one client."""
    contenders = [Contender("bare start", latency(world.bare().create))]
    for name, url in world.servers():
        contenders.append(Contender(name, latency((await world.mcp(url)).create)))
    return Group("create, 1 client", 1.5, contenders, [Bar("ours", "p50", 1.5, "bare start")])


async def create_many(world: World) -> Group:
    """The same, 16 clients."""
    contenders = [Contender("bare start", throughput([world.bare().create] * 16))]
    for name, url in world.servers():
        contenders.append(Contender(name, throughput([(await world.mcp(url)).create for _ in range(16)])))
    return Group("create, 16 clients", 3.0, contenders, [Bar("ours", "rate", 0.85, "bare start")])


async def update_one(world: World) -> Group:
    """tasks/update with the answer of a parked task, one client."""
    contenders = [Contender("bare signal", _answers(world.bare()))]
    for name, url in world.servers():
        contenders.append(Contender(name, _answers(await world.mcp(url))))
    return Group("tasks/update, 1 client", 1.0, contenders, [])


async def cycles(world: World) -> Group:
    """create, poll, answer, poll until done; 8 clients."""
    contenders = [
        Contender("bare client, workflow by hand", _cycles([world.bare_by_hand() for _ in range(8)])),
        Contender("bare client, our workflow", _cycles([world.bare() for _ in range(8)])),
    ]
    for name, url in world.servers():
        contenders.append(Contender(name, _cycles([await world.mcp(url) for _ in range(8)])))
    bars = [
        Bar("ours", "rate", 0.9, "bare client, workflow by hand"),
        Bar("ours", "rate", 0.9, "bare client, our workflow"),
        Bar("ours", "rate", 1.0, "peer"),
    ]
    return Group("create, ask, answer, done; 8 clients, a poll every 20 ms", 4.0, contenders, bars)


GROUPS: Final[dict[str, Callable[[World], Awaitable[Group]]]] = {
    "get-1": get_one,
    "get-32": get_many,
    "update-1": update_one,
    "cycle-8": cycles,
    "create-1": create_one,
    "create-16": create_many,
}
"""By the name that `--only` takes. Creating comes last: what it leaves parked would be in the way of the others."""


async def _blind_poll(world: World, url: str) -> Operation:
    session = await world.mcp(url)
    task_id, _ = await parked(session)
    return lambda: session.poll_blindly(task_id)


def _answers(session: Session) -> Callable[[float], Awaitable[Sample]]:
    async def turn(seconds: float) -> Sample:
        taken: list[float] = []
        for task_id, key in [await parked(session) for _ in range(round(16 * seconds))]:
            began = time.perf_counter()
            await session.answer(task_id, key)
            taken.append(time.perf_counter() - began)
        return percentiles(taken)

    return turn


def _cycles(sessions: Sequence[Session]) -> Callable[[float], Awaitable[Sample]]:
    return throughput([lambda session=session: cycle(session) for session in sessions])  # type: ignore[misc]
