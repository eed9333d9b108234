"""The same tools as an author would break them: each does something else where a running task may already be."""

from __future__ import annotations

import asyncio
from typing import Any

from temporalio import workflow

from tests.replay.tools import FORMS, Answer, Way, run_step
from workflows.kit import Task, tool


@tool(name="replay_work", description="Has a new timer before the first step.")
class Work(Task[Way, Any]):
    async def execute(self, arguments: Way) -> Any:
        await workflow.sleep(1)
        await run_step("first")
        return {}


@tool(name="replay_cancel", description="Has lost its unwinding.")
class Cancel(Task[Way, Any]):
    async def execute(self, arguments: Way) -> Any:
        await workflow.sleep(3600)


@tool(name="replay_ask", description="Works before it asks.", client_capabilities=FORMS)
class Ask(Task[Way, Any]):
    async def execute(self, arguments: Way) -> Any:
        await run_step("new")
        return (await self.elicit("First?", Answer, key="first")).model_dump()


@tool(name="replay_before", description="Works before the question.", client_capabilities=FORMS)
class Before(Task[Way, Any]):
    async def before_handle(self, arguments: Way) -> None:
        await run_step("new")

    async def execute(self, arguments: Way) -> Any:
        return {}


@tool(name="replay_loop", description="Has no checkpoint any more.", client_capabilities=FORMS)
class Loop(Task[Way, Any]):
    async def execute(self, arguments: Way) -> Any:
        aside = asyncio.create_task(self.elicit("Stop?", Answer, key="stop"))
        texts = []
        while not aside.done():
            texts.append((await self.elicit("More?", Answer, key="more")).text)
            await workflow.sleep(0.01)
        return texts


TASKS = (Work, Cancel, Ask, Before, Loop)
