"""The product that is fuzzed: Temporal, a worker and a bridge as processes of their own, and what must stay true of
them.

Beside the fuzzing a task waits for its answer from the beginning to the end, and a normal client is served.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.client import Client, WorkflowExecutionStatus

from tests.cases.client import FORMS, McpClient, accept
from tests.cases.stack import UNLIMITED, Process, running_stack
from tests.fuzz.checks import demand
from tests.stdio.client import StdioClient, request, stdio_client
from tests.support import eventually, resident_bytes, unique

TOOLS: Final = "tests.fuzz.tools"
FORM: Final[Mapping[str, Any]] = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}

MEGABYTE: Final = 1024 * 1024
MOST_MEMORY: Final = 600 * MEGABYTE
"""What a bridge may hold: its caches take some 120 MB, and a few messages of 4 MB are on their way at once."""

_COMPLAINT: Final = re.compile(rb"Traceback|\bERROR\b|\bCRITICAL\b|Task exception was never retrieved")
_EXPECTED: Final = frozenset({WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND})
"""A signal that comes while a workflow task ends: Temporal has it done again."""


@dataclass(kw_only=True)
class World:
    """What is fuzzed. `words` are what generators can only name, e.g. `$task`."""

    client: McpClient
    plain: McpClient
    pipe: StdioClient
    engine: Client
    bridge: Process
    worker: Process
    logs: dict[str, IO[bytes]]
    sentinel: str = ""
    words: dict[str, Any] = field(default_factory=dict)
    _read: dict[str, int] = field(default_factory=dict)

    async def begin(self) -> None:
        """Start what must survive, and give generators something to name."""
        self.sentinel = await self.client.start("ask_form", {"schema": FORM})
        await self.client.parked(self.sentinel)
        await self.renew()

    async def renew(self) -> None:
        """New tasks, states and tokens: those before may have come to their end."""
        asking = await self.client.start("ask_form", {"schema": FORM})
        victim = await self.client.start("ask_form", {"schema": FORM})
        waiting = (await self.plain.call("ask_form", {"schema": FORM})).result
        self.words = {
            "$task": self.sentinel,  # which nothing that is sent may end: it is only read, and its key is not guessed
            "$asking": asking,
            "$victim": victim,
            "$state": waiting["requestState"],
            "$cursor": "ZWNobw==",
            "$history": f"mcp-task://{victim}/history",
            "$question": waiting["requestState"],
        }

    async def check(self) -> None:
        """Raises Find, or what a client of its own raises, unless all is well."""
        async with asyncio.timeout(20):
            demand((await self.client.request("server/discover")).result["supportedVersions"], "no versions")
            reply = await self.client.call("echo", {"x": "ä"})
            demand(reply.result["structuredContent"] == {"x": "ä"}, f"a wrong echo: {reply.message!r:.300}")
            task = (await self.client.get(self.sentinel)).result
            demand(task["status"] == "input_required", f"the sentinel is {task['status']}")
            await self.pipe_alive()
        for name, process in (("bridge", self.bridge), ("worker", self.worker)):
            demand(process.process.returncode is None, f"the {name} has ended")
        held = resident_bytes(self.bridge.process.pid)
        demand(held < MOST_MEMORY, f"the bridge holds {held // MEGABYTE} MB")
        demand(not self.pipe.reading.done(), "standard output is no stream of messages any more")
        self.check_logs()

    async def pipe_alive(self) -> None:
        """Raises unless the server on standard input answers, under an id that no generator has."""
        discovered = await self.pipe.result(request("server/discover", id=unique("alive")))
        demand(discovered["supportedVersions"], "no versions")

    def check_logs(self) -> None:
        """Raises Find for what the programs complained about since the last look."""
        for name, log in self.logs.items():
            log.seek(self._read.get(name, 0))
            text = log.read()
            self._read[name] = log.tell()
            found = _COMPLAINT.search(text)
            around = text[max(0, found.start() - 500) : found.start() + 3_000] if found else b""
            demand(found is None, f"the {name}'s log:\n{around.decode(errors='replace')}")

    async def end(self) -> int:
        """Raises Find unless all that was started has ended or waits for an answer, and ends when it is told to.

        Returns:
            How many runs there were.
        """
        await eventually(self._only_waiting, what="the rest of the work", within=60)
        async for run in self.engine.list_workflows("ExecutionStatus = 'Running'"):
            if run.id != self.sentinel:
                await self.engine.get_workflow_handle(run.id).cancel()
        await eventually(self._only_sentinel, what="cancelled tasks to end", within=120)
        await self.client.update(self.sentinel, {"form": accept(a="done")})
        task = await self.client.finished(self.sentinel)
        demand(task["status"] == "completed", f"the sentinel is {task['status']}")
        answered = task["result"]["structuredContent"]["answers"]
        demand(answered == [accept(a="done")], f"the sentinel was answered with {answered!r:.300}")
        return await self._check_histories()

    async def _only_waiting(self) -> bool:
        """Whether every task waits for somebody."""
        query = "ExecutionStatus = 'Running' AND McpTaskStatus != 'input_required'"
        return [run.id async for run in self.engine.list_workflows(query)] == []

    async def _only_sentinel(self) -> bool:
        running = [run.id async for run in self.engine.list_workflows("ExecutionStatus = 'Running'")]
        return running == [self.sentinel]

    async def _check_histories(self) -> int:
        runs = 0
        async for run in self.engine.list_workflows():
            runs += 1
            demand(run.status != WorkflowExecutionStatus.TERMINATED, f"{run.id} was terminated")
            async for event in self.engine.get_workflow_handle(run.id, run_id=run.run_id).fetch_history_events():
                if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED:
                    failed = event.workflow_task_failed_event_attributes
                    demand(failed.cause in _EXPECTED, f"{run.id}: a workflow task failed: {failed!s:.500}")
        return runs


@asynccontextmanager
async def running_world() -> AsyncIterator[World]:
    """A world of its own, for the context."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        temporal = await stack.enter_async_context(running_stack(folder, settings=UNLIMITED))
        logs: dict[str, IO[bytes]] = {name: (folder / f"{name}.log").open("w+b") for name in ("bridge", "worker")}
        for log in logs.values():
            stack.callback(log.close)
        worker = await temporal.worker(TOOLS, log=logs["worker"], MCP_TASKS_LOG_LEVEL="warning")
        bridge = await temporal.bridge(TOOLS, log=logs["bridge"], MCP_TASKS_LOG_LEVEL="warning")
        world = World(
            client=await stack.enter_async_context(McpClient(bridge.url)),
            plain=await stack.enter_async_context(McpClient(bridge.url, FORMS)),
            pipe=await stack.enter_async_context(stdio_client(temporal.environment, tasks=TOOLS)),
            engine=await Client.connect(temporal.temporal.address),
            bridge=bridge,
            worker=worker,
            logs=logs,
        )
        await world.begin()
        yield world
