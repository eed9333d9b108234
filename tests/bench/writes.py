"""What changes tasks: creating them, answering them, and the whole cycle.

The sides of a bar come one after the other.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

from tests.bench.measure import Bar, Comparison, Contender, Outcome, Sample, Turn, percentiles, repeated
from tests.bench.sessions import Session, cycle, parked
from tests.bench.turns import compare
from tests.bench.world import World


async def create_one(world: World) -> Outcome:
    """tools/call that makes a task, one client."""
    contenders = [Contender(name, repeated([(await world.mcp(server)).create])) for name, server in world.servers()]
    contenders.insert(-1, Contender("bare start", repeated([world.bare().create])))
    bars = [Bar("ours", "p50", 1.5, "bare start")]
    return await compare(world, Comparison("create, 1 client", 1.5, contenders, bars))


async def create_many(world: World) -> Outcome:
    """The same, 16 clients."""
    contenders = [
        Contender(name, repeated([session.create for session in await world.clients(server, 16)]))
        for name, server in world.servers()
    ]
    contenders.insert(-1, Contender("bare start", repeated([world.bare().create] * 16)))
    bars = [Bar("ours", "rate", 0.85, "bare start")]
    return await compare(world, Comparison("create, 16 clients", 1.5, contenders, bars))


async def update_one(world: World) -> Outcome:
    """tasks/update with the answer of a parked task, one client."""
    contenders = [Contender("bare signal", _answers(world.bare()))]
    for name, server in world.servers():
        contenders.append(Contender(name, _answers(await world.mcp(server))))
    return await compare(world, Comparison("tasks/update, 1 client", 1.0, contenders))


async def cycles(world: World) -> Outcome:
    """create, poll, answer, poll until done; 8 clients."""
    contenders = [Contender(name, _cycles(await world.clients(server, 8))) for name, server in world.servers()]
    contenders[-1:-1] = [
        Contender("bare client, workflow by hand", _cycles([world.bare_by_hand() for _ in range(8)])),
        Contender("bare client, our workflow", _cycles([world.bare() for _ in range(8)])),
    ]
    bars = [
        Bar("ours", "rate", 0.9, "bare client, workflow by hand"),
        Bar("ours", "rate", 0.9, "bare client, our workflow"),
        Bar("ours", "rate", 1.0, "peer"),
    ]
    title = "create, ask, answer, done; 8 clients, a poll every 20 ms"
    return await compare(world, Comparison(title, 4.0, contenders, bars))


def _answers(session: Session) -> Turn:
    async def turn(seconds: float) -> Sample:
        taken: list[float] = []
        for task_id, key in [await parked(session) for _ in range(round(16 * seconds))]:
            began = time.perf_counter()
            await session.answer(task_id, key)
            taken.append(time.perf_counter() - began)
        return percentiles(taken)

    return turn


def _cycles(sessions: Sequence[Session]) -> Turn:
    return repeated([partial(cycle, session) for session in sessions])
