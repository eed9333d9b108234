"""More parked tasks: does a read get slower, and who needs more memory?

Each size has a Temporal of its own. A turn starts a new bridge at each, and reads tasks that the bridges of the turns
before have read as well, for the first time and then a few times more, too seldom to be watched; and so does a bare
client. The sizes take turns after a few reads each, so that a machine that is slow for a second is so for all. Where
there are enough, both also read tasks that nobody has read since they were made: what Temporal has not had in its hands
lately takes it longer. The tasks are made by a bare client, so the bridge that runs meanwhile knows nothing of them,
and must not grow. The worker's cache of runs has a bound, so its memory must have one.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench.bare import BareSession
from tests.bench.measure import Bar, Outcome, Sample, Verdict, medians, percentiles, verdict
from tests.bench.sessions import make
from tests.bench.wire import McpServer, McpSession
from tests.bench.world import TASKS, TOOLS_QUEUE, World, connect
from tests.cases.stack import UNLIMITED, Stack, running_stack
from tests.support import resident_bytes

SIZES: Final = (100, 1_000, 10_000)
QUICK_SIZES: Final = (100, 1_000)
TURNS: Final = 5
QUICK_TURNS: Final = 2

SAMPLE: Final = 100
"""Tasks of each size that a turn reads, spread evenly over all."""

CHUNK: Final = 10
"""Of which so many are read before it is the next size's turn."""

REPEATS: Final = 3
CREATORS: Final = 32

WARM_UP: Final = 30
"""Creates and reads of a bridge whose memory is measured, so that it has everything loaded, and reads of another task
before the first that counts."""

MOST_KIB: Final = 2.0
MiB: Final = 1024 * 1024


@dataclass(frozen=True)
class _Site:
    stack: Stack
    bare: BareSession
    tasks: Sequence[str]
    other: str
    """One more, for what does not count."""
    memory: Sample

    @property
    def stride(self) -> int:
        return max(1, (len(self.tasks) - 1) // SAMPLE)

    def spread(self, offset: int) -> Sequence[str]:
        """Tasks that a turn reads, spread evenly; other ones for each offset below the stride."""
        return self.tasks[offset :: self.stride][:SAMPLE]


async def growth(world: World) -> Outcome:
    """tasks/get and memory at each size."""
    quick = world.plan.quick
    sizes, turns = (QUICK_SIZES, QUICK_TURNS) if quick else (SIZES, TURNS)
    reads: dict[str, list[Sample]] = {}
    memory: dict[str, Sample] = {}
    async with AsyncExitStack() as running:
        sites: dict[int, _Site] = {}
        with world.progress("growth", len(sizes) + turns) as step:
            for size in sizes:
                step(f"making {size} parked tasks")
                sites[size] = await _populated(running, size)
                memory[f"memory with {size} parked"] = sites[size].memory
            for turn in range(turns):
                step(f"turn {turn + 1}")
                for name, sample in (await _turn(sites, turn)).items():
                    reads.setdefault(name, []).append(sample)
    most = sizes[-1]
    bars = [Bar(name(most), "p50", 1.2, name(sizes[0])) for name in (_first, _again)]
    grown = memory[f"memory with {most} parked"]["KiB a task"]
    limit = Verdict(
        work=f"bridge memory, {most} tasks that nobody reads",
        figure="KiB a task",
        bar=f"< {MOST_KIB:g} KiB a task",
        value=grown,
        met=grown < MOST_KIB,
    )
    rows = {name: medians(samples) for name, samples in sorted(reads.items(), key=lambda row: row[0].split(": ")[1])}
    return Outcome("growth", {**rows, **memory}, [*(verdict(bar, reads) for bar in bars), limit])


def _first(size: int) -> str:
    return f"{size} parked: first read of a new replica"


def _again(size: int) -> str:
    return f"{size} parked: read again"


def _first_of_all(size: int) -> str:
    return f"{size} parked: first read of tasks that nobody has read"


def _bare(size: int) -> str:
    return f"{size} parked: bare describe"


def _bare_first_of_all(size: int) -> str:
    return f"{size} parked: bare describe of tasks that nobody has read"


async def _populated(running: AsyncExitStack, size: int) -> _Site:
    folder = Path(running.enter_context(tempfile.TemporaryDirectory()))
    stack = await running.enter_async_context(running_stack(folder, settings=UNLIMITED))
    worker, bridge = await stack.worker(TASKS), await stack.bridge(TASKS)
    session = await McpSession.connect(McpServer(bridge.url))
    for task_id in await make([session], WARM_UP, "input_required"):
        await session.read(task_id)
    await session.close()
    before = resident_bytes(bridge.process.pid)
    client = await connect(stack)
    bare = BareSession(client, "approve", TOOLS_QUEUE)
    *tasks, other = await make([bare] * CREATORS, size + 1, "input_required")
    after = resident_bytes(bridge.process.pid)
    memory = {
        "KiB a task": (after - before) / 1024 / size,
        "bridge MiB": after / MiB,
        "worker MiB": resident_bytes(worker.process.pid) / MiB,
        "temporal MiB": resident_bytes(stack.temporal.process.pid) / MiB,
    }
    await bridge.stop()
    await worker.stop()  # nobody needs it for parked tasks
    return _Site(stack, bare, tasks, other, memory)


async def _turn(sites: Mapping[int, _Site], turn: int) -> dict[str, Sample]:
    """The figures of one turn, by row."""
    async with AsyncExitStack() as running:
        sessions = dict(
            zip(sites, await asyncio.gather(*(_replica(running, site) for site in sites.values())), strict=True)
        )
        read = {size: session.read for size, session in sessions.items()}
        describe = {size: site.bare.describe for size, site in sites.items()}
        chosen = {size: site.spread(0) for size, site in sites.items()}
        taken = {
            _first: await _timed(read, chosen),
            _again: await _timed(read, chosen, REPEATS),
            _bare: await _timed(describe, chosen, REPEATS),
        }
        unread = {size: site.spread(2 * turn + 1) for size, site in sites.items() if site.stride > 2 * TURNS}
        unread_too = {size: sites[size].spread(2 * turn + 2) for size in unread}
        taken |= {
            _first_of_all: await _timed(read, unread),
            _bare_first_of_all: await _timed(describe, unread_too),
        }
    return {name(size): percentiles(seconds) for name, each in taken.items() for size, seconds in each.items()}


async def _replica(running: AsyncExitStack, site: _Site) -> McpSession:
    """A client of a new bridge, which has everything loaded; both end with `running`."""
    bridge = await site.stack.bridge(TASKS)
    running.push_async_callback(bridge.stop)
    session = await McpSession.connect(McpServer(bridge.url))
    running.push_async_callback(session.close)
    for _ in range(WARM_UP):
        await session.read(site.other)
    return session


async def _timed(
    read: Mapping[int, Callable[[str], Awaitable[object]]], tasks: Mapping[int, Sequence[str]], rounds: int = 1
) -> dict[int, list[float]]:
    """How long each read took, in seconds, by size; so many rounds through these tasks."""
    taken = {size: list[float]() for size in tasks}
    for start in list(range(0, SAMPLE, CHUNK)) * rounds:
        for size, chosen in tasks.items():
            for task_id in chosen[start : start + CHUNK]:
                began = time.perf_counter()
                await read[size](task_id)
                taken[size].append(time.perf_counter() - began)
    return taken
