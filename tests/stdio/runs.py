"""What Temporal itself knows of a call's run."""

from __future__ import annotations

from temporalio.client import Client, WorkflowExecutionStatus

from tests.cases.stack import Stack
from tests.encryption import CONVERTER, value_of
from tests.support import eventually


async def run_of(stack: Stack, label: str) -> tuple[str, bool] | None:
    """The status of the one run that was started with `label`, and whether its cancel was requested."""
    temporal = await Client.connect(stack.temporal.address, data_converter=CONVERTER)
    found = []
    async for execution in temporal.list_workflows():
        handle = temporal.get_workflow_handle(execution.id)
        started = (await handle.fetch_history()).events[0].workflow_execution_started_event_attributes
        if value_of(started.input.payloads[0]).get("label") == label:
            described = await handle.describe()
            assert isinstance(described.status, WorkflowExecutionStatus)
            found.append((described.status.name, described.raw_description.workflow_extended_info.cancel_requested))
    assert len(found) <= 1
    return found[0] if found else None


async def is_cancelled(stack: Stack, label: str) -> None:
    """Wait for it, with the run that was started with `label`."""

    async def ended() -> bool:
        return await run_of(stack, label) == ("CANCELED", True)

    await eventually(ended, what="the cancelled run", within=30)


async def is_running(stack: Stack, label: str) -> None:
    """Wait for it, with the run that was started with `label`."""

    async def begun() -> bool:
        return await run_of(stack, label) == ("RUNNING", False)

    await eventually(begun, what="the running run", within=30)
