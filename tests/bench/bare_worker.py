"""The bare workflow's worker, a process of its own; like ours it imports the workflow's module once. Argument: the
task queue.
"""

from __future__ import annotations

import asyncio
import sys

from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from bridge.settings import temporal_connect_config
from bridge.stopping import leave, stop_signals
from tests.bench.bare_workflow import BareApprove


async def main(queue: str) -> None:
    """Work until told to stop."""
    client = await Client.connect(**temporal_connect_config(), data_converter=pydantic_data_converter)
    runner = SandboxedWorkflowRunner(SandboxRestrictions.default.with_passthrough_modules(BareApprove.__module__))
    worker = Worker(client, task_queue=queue, workflows=[BareApprove], workflow_runner=runner)
    async with stop_signals() as stop, worker:
        sys.stdout.write("{}\n")
        sys.stdout.flush()
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
    leave(0)
