"""The worker of a team that uses Temporal. Nothing of this bridge is imported: `ApproveInvoice` asks with the
contract's one query, one signal and one memo, the other workflows know nothing of it at all.
"""

import asyncio
import os
import signal
import sys
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker


@activity.defn
async def build_report(month: str, copies: int) -> dict[str, Any]:
    return {"month": month, "copies": copies}


@workflow.defn
class MonthlyReport:
    @workflow.run
    async def run(self, month: str, copies: int = 1) -> dict[str, Any]:
        return await workflow.execute_activity(
            build_report, args=[month, copies], start_to_close_timeout=timedelta(minutes=1)
        )


@workflow.defn
class NightlyImport:
    @workflow.run
    async def run(self, order: dict[str, Any]) -> None:
        await workflow.sleep(timedelta(seconds=order["seconds"]))


@workflow.defn
class ReadPage:
    @workflow.run
    async def run(self, page: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": page["title"]}]}


@workflow.defn
class Refuse:
    @workflow.run
    async def run(self, reason: dict[str, Any]) -> None:
        details = reason.get("details", ())
        raise ApplicationError("The ledger is closed", *details, type=reason["type"], non_retryable=True)


@workflow.defn
class ApproveInvoice:
    def __init__(self) -> None:
        self.question: dict[str, Any] | None = None
        self.answer: dict[str, Any] | None = None
        self.changed_at = workflow.now()

    @workflow.run
    async def run(self, invoice: dict[str, Any]) -> dict[str, Any]:
        self.question = {
            "method": "elicitation/create",
            "params": {
                "mode": "form",
                "message": f"Pay {invoice['cents']} cents?",
                "requestedSchema": {
                    "type": "object",
                    "properties": {"approve": {"type": "boolean", "title": "Approve"}},
                    "required": ["approve"],
                },
            },
        }
        self.publish()
        await workflow.wait_condition(lambda: self.answer is not None)
        self.question = None
        self.publish()
        answer = self.answer or {}
        approved = answer.get("action") == "accept" and answer["content"]["approve"]
        return {"invoice": invoice["id"], "approved": approved}

    @workflow.query(name="mcp_task")
    def view(self) -> dict[str, Any]:
        changed_at = self.changed_at.isoformat()
        view: dict[str, Any] = {"v": 1, "status": "working", "changedAt": changed_at, "published": True}
        if self.question:
            view |= {"status": "input_required", "inputRequests": {"approval": self.question}}
        return view

    @workflow.signal(name="mcp_update")
    def update(self, sent: Any) -> None:
        if self.question and self.answer is None and isinstance(sent, dict):
            self.answer = sent.get("responses", {}).get("approval")

    def publish(self) -> None:
        """What the query answers, where it can be read while no worker is there."""
        self.changed_at = workflow.now()
        workflow.upsert_memo({"mcp_view": self.view()})


@workflow.defn
class ConfirmInvoice(ApproveInvoice):
    """Asks before the caller is given a task handle, so it ends by itself if nobody answers."""

    @workflow.run
    async def run(self, invoice: dict[str, Any]) -> dict[str, Any]:
        try:
            return await asyncio.wait_for(
                super().run(invoice), workflow.memo_value("mcp_task")["answerWindowMs"] / 1000
            )
        except TimeoutError:
            raise ApplicationError("Nobody answered in time", type="mcp.Expired", non_retryable=True) from None

    @workflow.query(name="mcp_task")
    def view(self) -> dict[str, Any]:
        return super().view() | ({"phase": "before_handle"} if self.question else {})


async def main() -> None:
    worker = Worker(
        await Client.connect(os.environ["TEMPORAL_ADDRESS"]),
        task_queue=os.environ.get("TASK_QUEUE", "office"),
        workflows=[MonthlyReport, NightlyImport, ReadPage, Refuse, ApproveInvoice, ConfirmInvoice],
        activities=[build_report],
    )
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with worker:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(main())
