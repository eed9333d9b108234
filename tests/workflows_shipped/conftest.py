"""A real Temporal dev server, a worker with the shipped tools, and a real site."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from activities import ACTIVITIES
from tests.workflows_shipped.driver import Driver
from workflows import TASKS

QUEUE: Final = "shipped"
RUNNER: Final = SandboxedWorkflowRunner(
    restrictions=SandboxRestrictions.default.with_passthrough_modules("workflows.kit")
)
SUGGEST_CONTINUE_AS_NEW: Final = 60
"""Events of a history at which the server suggests to continue as new; 4,096 by default."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Serve = Callable[[Handler], Awaitable[str]]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def driver() -> AsyncIterator[Driver]:
    async with (
        await WorkflowEnvironment.start_local(
            data_converter=pydantic_data_converter,
            dev_server_existing_path=str(Path(sys.executable).parent / "temporal"),
            dev_server_extra_args=[
                "--dynamic-config-value",
                f"limit.historyCount.suggestContinueAsNew={SUGGEST_CONTINUE_AS_NEW}",
            ],
        ) as environment,
        Worker(
            environment.client,
            task_queue=QUEUE,
            workflows=list(TASKS),
            activities=ACTIVITIES,
            workflow_runner=RUNNER,
            identity="worker",  # else recorded histories would name this machine
            max_heartbeat_throttle_interval=timedelta(seconds=0.1),
            default_heartbeat_throttle_interval=timedelta(seconds=0.1),
        ),
    ):
        yield Driver(environment.client, QUEUE)


@pytest_asyncio.fixture(loop_scope="session")
async def serve() -> AsyncIterator[Serve]:
    """Starts a server on loopback that answers every request with the given handler; returns its address."""
    servers: list[TestServer] = []

    async def start(handler: Handler) -> str:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", handler)
        server = TestServer(app)
        servers.append(server)
        await server.start_server(shutdown_timeout=0.1)  # a test may leave a request without an answer
        return str(server.make_url("/"))

    yield start
    for server in servers:
        await server.close()
