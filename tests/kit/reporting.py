"""A tool that reports its progress, and what of it is published."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any

from temporalio import workflow

from tests.kit.tools import Confirm, Loop, Mode, kit_step
from workflows.kit import Task, tool

LEFT_BEHIND: list[Coroutine[Any, Any, None]] = []


@tool(name="kit_report", description="Reports as its mode says.", client_capabilities={"elicitation": {}})
class Report(Task[Mode, str]):
    State = Loop

    async def execute(self, arguments: Mode) -> str:
        await getattr(self, arguments.mode)(arguments)
        await workflow.sleep(3600)
        return "slept"

    async def nothing(self, _: Mode) -> None:
        """Waits at once."""

    async def each_step(self, arguments: Mode) -> None:
        for number in range(arguments.steps):
            await workflow.sleep(0.01)
            self.progress(number + 1, total=arguments.steps)

    async def at_once(self, arguments: Mode) -> None:
        await workflow.sleep(0.01)
        for number in range(arguments.steps):
            self.progress(number + 1)

    async def with_questions(self, arguments: Mode) -> None:
        await workflow.sleep(0.01)
        self.progress(1)
        await asyncio.gather(*(self.elicit("Sure?", Confirm) for _ in range(arguments.steps)))

    async def large(self, arguments: Mode) -> None:
        question = asyncio.create_task(self.elicit("?" * 70_000, Confirm, key="large"))
        await self.each_step(arguments)
        await question

    async def long_messages(self, arguments: Mode) -> None:
        for number in range(arguments.steps):
            self.progress(number + 1, message="\N{GRINNING FACE}" * 900)

    async def asked_before_rollover(self, _: Mode) -> None:
        if self.state is not None:
            await workflow.sleep(3600)
        question = asyncio.create_task(self.elicit("Sure?", Confirm, key="sure"))
        while not question.done():
            await self.step_and_checkpoint()

    async def leaves_one_behind(self, _: Mode) -> None:
        left = self.reports_when_closed()
        left.send(None)
        LEFT_BEHIND.append(left)

    async def reports_when_closed(self) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.progress(99, message="of another task")

    async def finds_one(self, _: Mode) -> None:
        LEFT_BEHIND.pop().close()  # as the collector may, in whatever run is at work

    async def rollover(self, arguments: Mode) -> None:
        if self.state is None:
            self.progress(1)
        while self.state is None:
            await self.step_and_checkpoint()

    async def step_and_checkpoint(self) -> None:
        await workflow.execute_activity(kit_step, 0.0, start_to_close_timeout=timedelta(seconds=10))
        if workflow.info().is_continue_as_new_suggested():
            await self.checkpoint(Loop(index=1, answers=[]))
