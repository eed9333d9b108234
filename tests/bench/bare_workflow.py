"""The limit: a workflow that speaks the contract by hand, as little code as that takes. Same question, same answer."""

from __future__ import annotations

from typing import Any

from temporalio import workflow
from temporalio.common import SearchAttributeKey

STATUS = SearchAttributeKey.for_keyword("McpTaskStatus")


@workflow.defn(name="bare_approve")
class BareApprove:
    def __init__(self) -> None:
        self._view: dict[str, Any] = {"v": 1, "status": "working", "changedAt": workflow.now().isoformat()}
        self._answer: dict[str, Any] | None = None

    @workflow.query(name="mcp_task")
    def view(self) -> dict[str, Any]:
        return self._view

    @workflow.signal(name="mcp_update")
    def update(self, update: dict[str, Any]) -> None:
        if self._answer is None:
            self._answer = update["responses"].get("approval")

    @workflow.run
    async def run(self, arguments: dict[str, Any]) -> dict[str, Any]:
        schema = {"type": "object", "properties": {"approved": {"type": "boolean"}}, "required": ["approved"]}
        params = {"mode": "form", "message": f"Apply {arguments['change']}?", "requestedSchema": schema}
        self._view = {
            **self._view,
            "status": "input_required",
            "inputRequests": {"approval": {"method": "elicitation/create", "params": params}},
        }
        if arguments.get("snapshot", True):
            workflow.upsert_memo({"mcp_view": self._view})
        workflow.upsert_search_attributes([STATUS.value_set("input_required")])
        await workflow.wait_condition(lambda: self._answer is not None)
        decision = {"change": arguments["change"], "approved": (self._answer or {})["content"]["approved"]}
        return {"content": [{"type": "text", "text": str(decision)}], "structuredContent": decision}
