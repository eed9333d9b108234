"""Parked tasks outlive deployments: today's workflows replay the histories of every way of ending.

`RECORD_HISTORIES=1 pytest tests/workflows_shipped` records them anew; a change of one is a deliberate act.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Replayer

from tests.workflows_shipped.conftest import RUNNER
from tests.workflows_shipped.driver import HISTORIES
from workflows import TASKS


@pytest.mark.parametrize("path", sorted(HISTORIES.glob("*.json")), ids=lambda path: path.stem)
async def test_a_recorded_history_replays(path: Path) -> None:
    history = WorkflowHistory.from_json(path.stem, path.read_text())  # noqa: ASYNC240 - nothing else runs
    replayer = Replayer(workflows=list(TASKS), workflow_runner=RUNNER, data_converter=pydantic_data_converter)
    await replayer.replay_workflow(history)


def test_every_tool_has_histories() -> None:
    tools = {path.name.partition(".")[0] for path in HISTORIES.glob("*.json")}
    assert tools == {task.declaration.name for task in TASKS}
