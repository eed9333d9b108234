"""Acme's own worker, which hosts its tools beside whatever else it runs."""

import asyncio
import os
import signal
import sys

from activities.payments import hold, pay_back, release
from pydantic import ValidationError
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions
from workflows.refunds import RefundOrder


async def main() -> None:
    client = await Client.connect(os.environ["TEMPORAL_ADDRESS"], data_converter=pydantic_data_converter)
    worker = Worker(
        client,
        task_queue=os.environ.get("TASK_QUEUE", "refunds"),
        workflows=[RefundOrder],
        activities=[hold, pay_back, release],
        workflow_failure_exception_types=[ValidationError],
        workflow_runner=SandboxedWorkflowRunner(
            SandboxRestrictions.default.with_passthrough_modules("acme.mcp_kit")  # else imported anew for each run
        ),
    )
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with worker:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(main())
