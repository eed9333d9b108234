"""Every shipped tool has recorded histories; tests/replay replays them, with those of the kit.

`RECORD_HISTORIES=1 pytest tests/workflows_shipped` records them anew; a change of one is a deliberate act. Those
without `published` in their names are of runs that were started before views were, and stay as they are.
"""

from __future__ import annotations

from tests.workflows_shipped.driver import HISTORIES
from workflows import TASKS


def test_every_tool_has_histories() -> None:
    tools = {path.name.partition(".")[0] for path in HISTORIES.glob("*.json")}
    assert tools == {task.declaration.name for task in TASKS}
