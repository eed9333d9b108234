"""`python -m tests.bench`: ours, the peer and a bare Temporal client, in turns within one run.

The machine may be busy, so figures mean something only side by side: contenders alternate, a figure is the median of
their turns, and a bar is a ratio. Nothing here is a test: the exit status says whether it could be measured, not how it
went. It ends by itself: what is not measured within the limit is left out.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from rich.console import Console
from temporalio.service import RPCError

from bridge.stopping import leave
from tests.bench.groups import GROUPS, NOT_QUICK
from tests.bench.measure import Outcome
from tests.bench.peer import PeerMissing, running_peer
from tests.bench.report import WIDTH, as_json, show
from tests.bench.sessions import BenchError, reason
from tests.bench.world import FULL, QUICK, Plan, World
from tests.cases.stack import UNLIMITED, running_stack


async def _measure(names: Sequence[str], plan: Plan, console: Console) -> tuple[list[Outcome], bool]:
    """What could be measured, and whether that was all."""
    outcomes: list[Outcome] = []
    complete = True
    async with AsyncExitStack() as running:
        peer = None
        try:
            peer = await running.enter_async_context(running_peer(console))
        except PeerMissing as missing:
            console.print(f"[yellow]Without the peer: {missing}[/yellow]")
        folder = Path(running.enter_context(tempfile.TemporaryDirectory()))
        stack = await running.enter_async_context(running_stack(folder / "counter", settings=UNLIMITED))
        world = await World.of(plan, console, stack, running, peer)
        ends = time.monotonic() + plan.limit
        for number, name in enumerate(names, 1):
            console.print(f"{number}/{len(names)} {name}")
            measuring = asyncio.create_task(_group(world, name))
            await asyncio.wait({measuring}, timeout=max(0.0, ends - time.monotonic()))
            if not measuring.done():
                console.print(f"[red]Not all was measured within {plan.limit:.0f} s: the machine is too busy.[/red]")
                complete = False
                measuring.cancel()
                await asyncio.wait({measuring})
                break
            try:
                outcomes.append(measuring.result())
            except* (BenchError, RPCError, OSError, EOFError, AssertionError) as failures:
                console.print(f"[red]{name} could not be measured: {reason(failures)}[/red]")
                complete = False
    return outcomes, complete


async def _group(world: World, name: str) -> Outcome:
    began = time.monotonic()
    async with AsyncExitStack() as world.opened:
        outcome = await GROUPS[name](world)
    world.console.print(f"  {time.monotonic() - began:.0f} s")
    return outcome


def main() -> None:
    """Parse the options, measure, print."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench", description="Measures what docs/performance.md reports."
    )
    parser.add_argument("--quick", action="store_true", help="fewer and shorter turns, under five minutes")
    parser.add_argument("--only", action="append", choices=GROUPS, help="measure this group alone; may be repeated")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    options = parser.parse_args()
    console = Console(stderr=True)
    load = ", ".join(f"{average:.2f}" for average in os.getloadavg())
    console.print(f"{os.cpu_count()} cores, load average before {load}")
    plan = QUICK if options.quick else FULL
    names = options.only or [name for name in GROUPS if not (options.quick and name in NOT_QUICK)]
    outcomes, complete = asyncio.run(_measure(names, plan, console))
    if options.json:
        sys.stdout.write(json.dumps(as_json(outcomes), indent=2) + "\n")
    else:
        show(outcomes, Console(width=None if sys.stdout.isatty() else WIDTH))
    leave(0 if complete else 1)


if __name__ == "__main__":
    main()
