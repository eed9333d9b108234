"""The tools that are measured (`--tasks tests.bench.tools`): one asks once, one is at work for ever, one asks often."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pydantic import BaseModel
from temporalio import workflow

from workflows.kit import Form, Task, tool


class Change(BaseModel):
    change: str


class Decision(BaseModel):
    change: str
    approved: bool


class Rounds(BaseModel):
    rounds: int


class Answers(BaseModel):
    approvals: int


class Approval(Form):
    approved: bool


@tool(name="approve", description="Asks for an approval of a change.", task="required")
class Approve(Task[Change, Decision]):
    async def execute(self, arguments: Change) -> Decision:
        answer = await self.elicit(f"Apply {arguments.change}?", Approval, key="approval")
        return Decision(change=arguments.change, approved=answer.approved)


@tool(name="work", description="Works until it is cancelled.", task="required")
class Work(Task[Change, Decision]):
    async def execute(self, arguments: Change) -> Decision:
        await workflow.sleep(timedelta(days=30))
        return Decision(change=arguments.change, approved=False)


@tool(name="interview", description="Asks one question after the other.", task="required")
class Interview(Task[Rounds, Answers]):
    async def execute(self, arguments: Rounds) -> Answers:
        approvals = 0
        for number in range(arguments.rounds):
            answer = await self.elicit(f"Apply step {number}?", Approval, key=f"step-{number}")
            approvals += answer.approved
        return Answers(approvals=approvals)


TASKS: list[type[Task[Any, Any]]] = [Approve, Work, Interview]
ACTIVITIES: list[Any] = []
SHARED = [__name__]
