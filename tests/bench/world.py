"""What runs while something is measured, how thoroughly it is measured, and what several groups use in common."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.service import GrpcCompression

from bridge.child import start_child, stop_child
from bridge.dev_server import NAMESPACE
from tests.bench.accounts import Accounts, find_metrics_port
from tests.bench.bare import BareSession
from tests.bench.peer import Peer
from tests.bench.sessions import BenchError, make
from tests.bench.wire import ARGUMENTS, McpServer, McpSession, McpStream
from tests.cases.stack import Process, Stack

TASKS: Final = "tests.bench.tools"
TOOLS_QUEUE: Final = "mcp-tasks"
BARE_QUEUE: Final = "bench-bare"

CREATORS: Final = 16
"""Clients that make a pool of tasks."""

BEGUN_SECONDS: Final = 2.0
"""Until the last tasks of a pool are at work."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How thoroughly: `turns` of each contender, each `part` of its seconds; `pool` tasks to read in turn."""

    quick: bool
    turns: int
    part: float
    pool: int
    limit: float


LARGEST_CROWD: Final = 200
"""Clients that read a task each."""

FULL: Final = Plan(quick=False, turns=5, part=1.0, pool=600, limit=1440.0)
QUICK: Final = Plan(quick=True, turns=3, part=0.3, pool=300, limit=290.0)

Step = Callable[[str], None]
"""Says what comes next."""


@dataclass
class World:
    """Temporal, a worker and a bridge, the bare workflow's worker, and the peer if there is one.

    `processes` are accounted for, by part. What a group opens is closed with `opened`, at its end.
    """

    plan: Plan
    console: Console
    stack: Stack
    bridge: Process
    ours: McpServer
    peer: McpServer | None
    temporal: Client
    processes: dict[str, list[int]]
    accounts: Accounts
    opened: AsyncExitStack = field(default_factory=AsyncExitStack)
    _pools: dict[tuple[str, str], list[str]] = field(default_factory=dict)

    @classmethod
    async def of(cls, plan: Plan, console: Console, stack: Stack, running: AsyncExitStack, peer: Peer | None) -> World:
        """Start what is missing; it ends with `running` and `stack`."""
        worker = await stack.worker(TASKS)
        bridge = await stack.bridge(TASKS)
        bare = await start_bare_worker(running, stack.environment)
        temporal = stack.temporal.process.pid
        processes = {"bridge": [bridge.process.pid], "worker": [worker.process.pid, bare], "temporal": [temporal]}
        if peer is not None:
            processes["peer"] = list(peer.pids)
        return cls(
            plan=plan,
            console=console,
            stack=stack,
            bridge=bridge,
            ours=McpServer(bridge.url),
            peer=McpServer(peer.url) if peer else None,
            temporal=await connect(stack),
            processes=processes,
            accounts=Accounts(processes, await find_metrics_port(temporal)),
        )

    async def mcp(self, server: McpServer, tool: str = "approve") -> McpSession:
        """A new client of an MCP server."""
        session = await McpSession.connect(server)
        session.tool = tool
        self.opened.push_async_callback(session.close)
        return session

    async def clients(self, server: McpServer, count: int) -> list[McpSession]:
        """So many of them."""
        return [await self.mcp(server) for _ in range(count)]

    async def stream(self, task_ids: Sequence[str]) -> McpStream:
        """A new subscription at our bridge; the caller closes it."""
        stream = await McpStream.connect(self.ours)
        try:
            await stream.listen(task_ids)
        except BaseException:
            await stream.close()
            raise
        return stream

    def bare(self, workflow: str = "approve", arguments: Mapping[str, Any] = ARGUMENTS) -> BareSession:
        """A plain Temporal client of one of our workflows."""
        return BareSession(self.temporal, workflow, TOOLS_QUEUE, arguments)

    def bare_by_hand(self, arguments: Mapping[str, Any] = ARGUMENTS) -> BareSession:
        """A plain Temporal client of the workflow written by hand."""
        return BareSession(self.temporal, "bare_approve", BARE_QUEUE, arguments)

    def servers(self) -> list[tuple[str, McpServer]]:
        """The MCP servers by name."""
        return [*([("peer", self.peer)] if self.peer else []), ("ours", self.ours)]

    async def pool(self, server: McpServer, status: str) -> list[str]:
        """Tasks of a server in this status, made once for all groups: many parked ones, some of the others."""
        key = (server.address.netloc, status)
        if key not in self._pools:
            count = self.plan.pool if status == "input_required" else LARGEST_CROWD
            self.console.print(f"Making {count} tasks that are {status} ...")
            sessions = [await McpSession.connect(server) for _ in range(CREATORS)]
            try:
                for session in sessions:
                    session.tool = "work" if status == "working" else "approve"
                self._pools[key] = await make(sessions, count, status)
                if status == "working":  # seen so before the workflow has begun, too; the next read asks it once
                    await asyncio.sleep(BEGUN_SECONDS)
                    await _read_each(sessions, self._pools[key])
            finally:
                for session in sessions:
                    await session.close()
        return self._pools[key]

    @contextmanager
    def progress(self, title: str, total: int) -> Iterator[Step]:
        """A progress bar of so many steps; the step that it is told of begins, and the one before is done."""
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TextColumn("{task.fields[now]}"))
        with Progress(*columns, console=self.console) as progress:
            bar = progress.add_task(title, total=total, completed=-1, now="")

            def step(now: str) -> None:
                progress.update(bar, advance=1, now=now)

            yield step
            progress.update(bar, completed=total, now="")


async def _read_each(sessions: Sequence[McpSession], tasks: Sequence[str]) -> None:
    left = iter(tasks)

    async def client(session: McpSession) -> None:
        for task_id in left:
            await session.read(task_id)

    await asyncio.gather(*map(client, sessions))


async def connect(stack: Stack) -> Client:
    """A plain client of this Temporal. It does not compress its calls, as ours does not: that would be slower."""
    return await Client.connect(
        stack.temporal.address,
        namespace=NAMESPACE,
        data_converter=pydantic_data_converter,
        grpc_compression=GrpcCompression.NONE,
    )


async def start_bare_worker(running: AsyncExitStack, environment: Mapping[str, str]) -> int:
    """The worker of the workflow written by hand, which ends with `running`; returns its process id."""
    pid, _ = await start_program(running, "tests.bench.bare_worker", BARE_QUEUE, environment=environment)
    return pid


async def start_program(
    running: AsyncExitStack, module: str, *arguments: str, environment: Mapping[str, str]
) -> tuple[int, dict[str, Any]]:
    """Run a module of ours until `running` ends; returns its process id and the facts that it prints when ready."""
    child = await start_child(
        [sys.executable, "-m", module, *arguments], environment=environment, stdout=asyncio.subprocess.PIPE
    )
    running.push_async_callback(stop_child, child, ask=signal.SIGTERM, patience=5)
    line = await child.stdout.readline() if child.stdout else b""
    if not line:
        raise BenchError(f"{module} does not start")
    return child.pid, json.loads(line)
