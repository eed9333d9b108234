"""`python -m tests.bench.long_polls`: how many history long polls a Temporal development server holds for a namespace
before it refuses more, and what they cost. The bridge's own bound of watched tasks rests on it.

Polls are opened in steps and left open; each is of a parked task, so none is answered before Temporal's own 20 s. One
that is refused is not tried again. At each step: how many are open, how many were refused and with which status, how
long a describe takes beside them, and the memory of this client and of Temporal. Ends after the last step, or two steps
after the first refusal.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryRequest
from temporalio.client import Client
from temporalio.service import RPCError

from bridge.stopping import leave
from tests.bench.bare import BareSession
from tests.bench.measure import percentiles
from tests.bench.report import WIDTH
from tests.bench.sessions import make
from tests.bench.world import CREATORS, TASKS, TOOLS_QUEUE, connect
from tests.cases.stack import UNLIMITED, running_stack
from tests.support import resident_bytes

STEPS: Final = (0, 100, 300, 500, 800, 1000, 1150, 1250, 1500, 2000, 3000)
PARKED: Final = 200
"""Tasks, each of which is polled as often as it takes: what is bounded are polls, not tasks."""

SETTLE_SECONDS: Final = 2.0
DESCRIBES: Final = 100
LIMIT_SECONDS: Final = 240.0
MiB: Final = 1024 * 1024


@dataclass
class _Polls:
    """Those that were opened."""

    client: Client
    tasks: Sequence[str]
    open: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    _running: list[asyncio.Task[None]] = field(default_factory=list)

    async def grow(self, count: int) -> None:
        """Have so many that were opened."""
        while len(self._running) < count:
            task_id = self.tasks[len(self._running) % len(self.tasks)]
            self._running.append(asyncio.create_task(self._hold(task_id)))
            await asyncio.sleep(0.001)  # not all in one burst, which has a limit of its own

    async def end(self) -> None:
        """End them all."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _hold(self, task_id: str) -> None:
        """Wait behind the last event for as long as Temporal lets one, again and again, until refused."""
        request = GetWorkflowExecutionHistoryRequest(
            namespace=self.client.namespace, execution=WorkflowExecution(workflow_id=task_id), wait_new_event=True
        )
        self.open += 1
        try:
            while True:
                page = await self.client.workflow_service.get_workflow_execution_history(request)
                request.next_page_token = page.next_page_token
        except RPCError as refusal:
            self.refused[refusal.status.name] += 1
        finally:
            self.open -= 1


async def _measure(console: Console) -> Table:
    table = Table(title="History long polls of one namespace, by one client", title_justify="left")
    headings = ("opened", "open", "refused", "describe p50 ms", "p95 ms", "client MiB", "Temporal MiB")
    for heading in headings:
        table.add_column(heading, justify="right")
    async with AsyncExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory()))
        stack = await running.enter_async_context(running_stack(folder, settings=UNLIMITED))
        await stack.worker(TASKS)
        client = await connect(stack)
        console.print(f"Making {PARKED} parked tasks ...")
        bare = BareSession(client, "approve", TOOLS_QUEUE)
        tasks = await make([bare] * CREATORS, PARKED, "input_required")
        polls = _Polls(client, tasks)
        running.push_async_callback(polls.end)
        after_refusal = 0
        for count in STEPS:
            await polls.grow(count)
            await asyncio.sleep(SETTLE_SECONDS)
            taken = percentiles([await _describe(bare, tasks[number % PARKED]) for number in range(DESCRIBES)])
            row = [str(count), str(polls.open), ", ".join(f"{n} {name}" for name, n in polls.refused.items())]
            memory = [resident_bytes(pid) / MiB for pid in (os.getpid(), stack.temporal.process.pid)]
            table.add_row(*row, f"{taken['p50']:.2f}", f"{taken['p95']:.2f}", *(f"{size:.0f}" for size in memory))
            console.print(f"{count} opened, {polls.open} open")
            after_refusal += bool(polls.refused)
            if after_refusal > 2:
                break
    return table


async def _describe(bare: BareSession, task_id: str) -> float:
    began = time.perf_counter()
    await bare.describe(task_id)
    return time.perf_counter() - began


async def main() -> int:
    """Measure, and print the table; returns the exit status."""
    console = Console(stderr=True)
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            table = await _measure(console)
    except TimeoutError:
        console.print("[red]It took too long: the machine is too busy.[/red]")
        return 1
    Console(width=None if sys.stdout.isatty() else WIDTH).print(table)
    return 0


if __name__ == "__main__":
    leave(asyncio.run(main()))
