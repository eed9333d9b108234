"""The one tool of the soak (`--tasks tests.soak.tools`): the cases' `slow`, alone in its module.

The sandbox imports the module for each run; beside the other tools of the cases a run would cost the worker several
times as much, and a thousand of them would measure imports.
"""

from __future__ import annotations

from typing import Any

from temporalio import workflow

from workflows.kit import Task, tool

with workflow.unsafe.imports_passed_through():
    from tests.fixtures.case_parts import Slow, run_step, step


@tool(name="slow", description="Has a side effect per step.")
class SlowTool(Task[Slow, Any]):
    async def execute(self, arguments: Slow) -> Any:
        for _ in range(arguments.steps):
            await run_step(arguments.label, arguments.seconds / arguments.steps, arguments.cancellation)
        return {"steps": arguments.steps}


TASKS = (SlowTool,)
ACTIVITIES = (step,)
