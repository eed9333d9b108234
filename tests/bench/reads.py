"""tasks/get, in two ways: many parked tasks in turn, none of which is read often, and a task for each client that it
reads again and again, so that a server may watch it. Both the peer and ours are read in both ways; working and finished
tasks only in the second.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Sequence
from functools import partial
from typing import Final

from tests.bench.measure import Bar, Comparison, Contender, Operation, Outcome, repeated
from tests.bench.sessions import parked
from tests.bench.turns import compare
from tests.bench.wire import McpServer, McpSession
from tests.bench.world import World, start_program

READS_TO_BE_WATCHED: Final = 15
READ_SECONDS: Final = 0.1
"""So many reads of each task, with this pause, go before a turn of tasks that are read often: more, and for longer,
than after which the bridge watches a task.
"""


async def get_one(world: World) -> Outcome:
    """One client."""
    return await _reads(world, 1, 1.0)


async def get_many(world: World) -> Outcome:
    """32 clients."""
    return await _reads(world, 32, 1.5)


async def get_crowd(world: World) -> Outcome:
    """200 clients."""
    return await _reads(world, 200, 1.0)


async def _reads(world: World, count: int, seconds: float) -> Outcome:
    """In this order the sides of a bar come one after the other, and neither follows one that works both cores hard
    more often than the other does.
    """
    contenders = await _bare(world, count)
    if world.peer is not None:
        contenders.append(await _often(world, count, "peer, parked", world.peer, "input_required"))
        contenders.append(await _in_turn(world, count, "peer, parked", world.peer))
    contenders.append(await _in_turn(world, count, "ours, parked", world.ours))
    contenders += [
        await _often(world, count, f"ours, {kind}", world.ours, status)
        for kind, status in (("working", "working"), ("finished", "completed"), ("parked", "input_required"))
    ]
    contenders.append(await _ceiling(world, count))
    figure = "p50" if count == 1 else "rate"
    bars = [
        Bar("ours, parked, in turn", figure, 1.0 if count == 1 else 2.0, "peer, parked, in turn"),
        Bar("ours, parked, often", figure, 0.4 if count == 1 else 3.0, "peer, parked, often"),
        Bar("ours, parked, often", "rate", 0.8, "ceiling"),
    ]
    clients = "1 client" if count == 1 else f"{count} clients"
    return await compare(world, Comparison(f"tasks/get, {clients}", seconds, contenders, bars if count <= 32 else ()))


def in_turn(name: str, sessions: Sequence[McpSession], tasks: Sequence[str]) -> Contender:
    """All clients together go through the tasks, round and round."""
    following = itertools.cycle(tasks)

    def client(session: McpSession) -> Operation:
        return lambda: session.read(next(following))

    return Contender(name, repeated([client(session) for session in sessions]))


async def _in_turn(world: World, count: int, name: str, server: McpServer) -> Contender:
    tasks = await world.pool(server, "input_required")
    return in_turn(f"{name}, in turn", await world.clients(server, count), tasks)


async def _often(world: World, count: int, name: str, server: McpServer, status: str) -> Contender:
    """Each client reads a task of its own, and has done so for a while when a turn begins."""
    tasks = (await world.pool(server, status))[-count:]
    pairs = list(zip(await world.clients(server, count), itertools.cycle(tasks), strict=False))

    def client(session: McpSession, task_id: str) -> Operation:
        return lambda: session.read(task_id)

    async def before(session: McpSession, task_id: str) -> None:
        for _ in range(READS_TO_BE_WATCHED):
            await session.read(task_id)
            await asyncio.sleep(READ_SECONDS)

    async def prepare() -> None:
        await asyncio.gather(*(before(*pair) for pair in pairs))

    return Contender(f"{name}, often", repeated([client(*pair) for pair in pairs]), prepare)


async def _bare(world: World, count: int) -> list[Contender]:
    """A task for each client; where it is does not matter to Temporal."""
    bare = world.bare()
    tasks = [(await parked(bare))[0] for _ in range(min(count, 32))]
    clients = list(itertools.islice(itertools.cycle(tasks), count))
    describes = [partial(bare.describe, task) for task in clients]
    queries = [partial(bare.query, task) for task in clients]
    contenders = [Contender("bare describe", repeated(describes))]
    # Temporal refuses a second query while one waits, so more clients than tasks cannot ask
    return contenders if count > len(tasks) else [*contenders, Contender("bare query", repeated(queries))]


async def _ceiling(world: World, count: int) -> Contender:
    """The transport and the SDK's kernel with a handler that answers what a read of ours did."""
    (task_id, *_) = await world.pool(world.ours, "input_required")
    result = await (await world.mcp(world.ours)).get(task_id)
    pid, facts = await start_program(
        world.opened, "tests.bench.ceiling_server", json.dumps(result), environment=world.stack.environment
    )
    world.processes["ceiling"] = [pid]
    world.opened.callback(world.processes.pop, "ceiling")
    sessions = await world.clients(McpServer(facts["mcp"]), count)
    return Contender("ceiling", repeated([partial(session.read, task_id) for session in sessions]))
