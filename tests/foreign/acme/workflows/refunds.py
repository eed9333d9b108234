"""Refunds, which a person approves."""

import asyncio
from datetime import timedelta

from acme.mcp_kit import Form, Task, ToolError, tool
from pydantic import BaseModel
from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.payments import Payment, hold, pay_back, release

MINUTE = timedelta(minutes=1)


class Refund(BaseModel):
    order: str
    cents: int


class Approval(Form):
    approve: bool


@tool(name="acme.refund", description="Pays an order back, if a person approves.", lifetime=timedelta(days=7))
class RefundOrder(Task[Refund, str]):
    async def execute(self, refund: Refund) -> str:
        if refund.cents <= 0:
            raise ToolError("There is nothing to pay back.")
        payment = Payment(refund.order, refund.cents)
        held = await workflow.execute_activity(hold, payment, start_to_close_timeout=MINUTE)
        try:
            answer = await self.elicit(f"Pay back {refund.cents} cents?", Approval, key="approval")
        except asyncio.CancelledError:
            await workflow.execute_activity(release, held, start_to_close_timeout=MINUTE)
            raise
        if not answer.approve:
            await workflow.execute_activity(release, held, start_to_close_timeout=MINUTE)
            return "Not approved. Nothing was paid back."
        return await workflow.execute_activity(pay_back, payment, start_to_close_timeout=MINUTE)
