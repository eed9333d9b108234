"""Tasks outlive deployments: today's kit and tools replay the histories of earlier ones, for each way of ending.

The histories of the shipped tools are kept beside their tests.
"""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
from temporalio import workflow
from temporalio.client import WorkflowHistory
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Replayer, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

import workflows
from tests.replay import changed, tools
from tests.replay.record import HISTORIES, STARTED_BEFORE
from tests.support import ROOT

KIT_HISTORIES: Final = sorted(HISTORIES.glob("*.json"))
SHIPPED_HISTORIES: Final = sorted((ROOT / "tests" / "workflows_shipped" / "histories").glob("*.json"))
ALL_HISTORIES: Final = (*KIT_HISTORIES, *SHIPPED_HISTORIES)

SHARED: Final = SandboxedWorkflowRunner(SandboxRestrictions.default.with_passthrough_modules("workflows.kit"))
"""As our worker runs them."""

SANDBOXED: Final = SandboxedWorkflowRunner()
"""As a team's own worker may run them: the kit, too, must do nothing that the sandbox forbids."""

ENDS: Final = {
    "completed": "completed",
    "failed": "failed",
    "tool_error": "failed",
    "bug": "failed",
    "cancelled": "canceled",
    "cancelled_but_completed": "completed",
    "cancelled_but_last_step_finished": "completed",
    "cancelled_but_failed": "failed",
    "cancelled_parked": "canceled",
    "lifetime_expired": "failed",
    "answered": "completed",
    "declined": "failed",
    "deadline": "failed",
    "answer_window_expired": "failed",
    "parked": "open",
    "asked_before_handle": "completed",
    "continued": "continued_as_new",
    "approved": "continued_as_new",
}
"""How the first recorded run of each name ends."""


@pytest.mark.parametrize("runner", [SHARED, SANDBOXED], ids=["kit-shared", "kit-sandboxed"])
async def test_every_recorded_history_replays(runner: WorkflowRunner) -> None:
    names = {_run_id(history(path)): path.stem for path in ALL_HISTORIES}
    assert len(names) == len(ALL_HISTORIES)

    async def histories() -> AsyncIterator[WorkflowHistory]:
        for path in ALL_HISTORIES:
            yield history(path)

    tasks = (*tools.TASKS, *workflows.TASKS)
    replayed = await replayer(tasks, runner).replay_workflows(histories(), raise_on_replay_failure=False)
    assert {names[run_id]: str(failure) for run_id, failure in replayed.replay_failures.items()} == {}


def test_every_way_of_ending_is_recorded_and_ends_that_way() -> None:
    assert set(ENDS) == set(STARTED_BEFORE)
    first = {path.name.partition(".")[0]: path for path in reversed(KIT_HISTORIES)}
    ends = {name: end(history(path)) for name, path in first.items()}
    assert ends == ENDS | {f"{name}_published": how for name, how in ENDS.items()}


@pytest.mark.parametrize("name", ["continued.", "continued_published."])
def test_a_continued_task_is_recorded_run_by_run(name: str) -> None:
    ends = [end(history(path)) for path in KIT_HISTORIES if path.name.startswith(name)]
    assert len(ends) > 1
    assert ends == ["continued_as_new"] * (len(ends) - 1) + ["completed"]


def test_every_shipped_tool_is_recorded_in_its_main_ways_of_ending() -> None:
    ends = {(path.name.partition(".")[0], end(history(path))) for path in SHIPPED_HISTORIES}
    for task in workflows.TASKS:
        assert {(task.declaration.name, how) for how in ("completed", "failed", "canceled")} <= ends


@pytest.mark.parametrize(
    "name",
    ["completed", "cancelled", "cancelled_but_completed", "answered", "parked", "asked_before_handle", "continued"],
)
@pytest.mark.parametrize("published", ["", "_published"], ids=["started before", "published"])
async def test_a_tool_that_was_changed_under_its_running_tasks_is_caught(name: str, published: str) -> None:
    first = next(path for path in KIT_HISTORIES if path.name.startswith(f"{name}{published}."))
    with pytest.raises(workflow.NondeterminismError):
        await replayer(changed.TASKS, SHARED).replay_workflow(history(first))


@pytest.mark.parametrize("path", ALL_HISTORIES, ids=lambda path: path.stem)
def test_a_recorded_history_names_no_machine(path: Path) -> None:
    text = path.read_text()
    assert socket.gethostname() not in text
    assert str(ROOT) not in text
    assert '.py"' not in text
    assert _texts(json.loads(text), "stackTrace") <= {""}
    assert _texts(json.loads(text), "identity") <= {""}


def replayer(tasks: tuple[Any, ...], runner: WorkflowRunner) -> Replayer:
    return Replayer(workflows=tasks, workflow_runner=runner, data_converter=pydantic_data_converter)


def history(path: Path) -> WorkflowHistory:
    return WorkflowHistory.from_json(path.stem, path.read_text())


def end(recorded: WorkflowHistory) -> str:
    """How a run ended, e.g. `completed`; `open` if it has not."""
    name = str(recorded.events[-1].WhichOneof("attributes")).removesuffix("_event_attributes")
    closed = name.removeprefix("workflow_execution_")
    return "open" if closed == name else closed


def _run_id(recorded: WorkflowHistory) -> str:
    return recorded.events[0].workflow_execution_started_event_attributes.original_execution_run_id


def _texts(value: Any, name: str) -> set[str]:
    """Every text under a member of this name."""
    if isinstance(value, dict):
        here = {item for key, item in value.items() if key == name}
        return here.union(*(_texts(item, name) for item in value.values()))
    return set[str]().union(*(_texts(item, name) for item in value)) if isinstance(value, list) else set()
