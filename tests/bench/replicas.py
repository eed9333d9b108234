"""Two bridges in front of one Temporal against one, with as many clients, half of them at each."""

from __future__ import annotations

from typing import Final

from tests.bench.measure import Bar, Comparison, Contender, Outcome, repeated
from tests.bench.reads import in_turn
from tests.bench.turns import compare
from tests.bench.wire import McpServer, McpSession
from tests.bench.world import TASKS, World

CLIENTS: Final = 32
ONE: Final = "one bridge"
TWO: Final = "two bridges"


async def get_replicas(world: World) -> Outcome:
    """Parked tasks read in turn."""
    tasks = await world.pool(world.ours, "input_required")
    return await _compare(
        world, "tasks/get", [in_turn(name, sessions, tasks) for name, sessions in (await _clients(world)).items()]
    )


async def create_replicas(world: World) -> Outcome:
    """Tasks created."""
    contenders = [
        Contender(name, repeated([session.create for session in sessions]))
        for name, sessions in (await _clients(world)).items()
    ]
    return await _compare(world, "create", contenders)


async def _clients(world: World) -> dict[str, list[McpSession]]:
    """Of one bridge, and of two; the second ends with the group."""
    second = await world.stack.bridge(TASKS)
    world.opened.push_async_callback(second.stop)
    world.processes["bridge"].append(second.process.pid)
    world.opened.callback(world.processes["bridge"].remove, second.process.pid)
    one = await world.clients(world.ours, CLIENTS)
    return {ONE: one, TWO: [*one[: CLIENTS // 2], *await world.clients(McpServer(second.url), CLIENTS // 2)]}


async def _compare(world: World, what: str, contenders: list[Contender]) -> Outcome:
    title = f"{what}, two bridges against one, {CLIENTS} clients"
    return await compare(world, Comparison(title, 2.0, contenders, [Bar(TWO, "rate", 1.0, ONE)]))
