"""A tool of the module under test: it asks, runs a step, and is full of what a history must not tell."""

from __future__ import annotations

from datetime import timedelta

from pydantic import BaseModel
from temporalio import activity, workflow

from workflows.kit import Form, Task, tool


class Payment(BaseModel):
    account: str


class Approval(Form):
    approve: bool
    note: str


@activity.defn
async def pay(account: str) -> str:
    return f"receipt-of-{account}"


@tool(name="pay", description="Pays, if a person approves.", client_capabilities={"elicitation": {}})
class Pay(Task[Payment, str]):
    async def execute(self, arguments: Payment) -> str:
        await self.elicit("Pay?", Approval, key="approval")
        return await workflow.execute_activity(pay, arguments.account, start_to_close_timeout=timedelta(minutes=1))
