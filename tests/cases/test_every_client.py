"""One tool, every kind of client: the same durable run, and the same result (design: "every kind of client runs the
same workflow")."""

from __future__ import annotations

import asyncio
import itertools
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio
from aiohttp import web
from temporalio.client import Client, WorkflowExecution, WorkflowExecutionStatus

from activities.deploy_release import ROOT_VARIABLE
from bridge.dev_server import LOOPBACK
from tests.activities.test_deploy_release import make_application
from tests.cases.client import FORMS, McpClient, accept
from tests.cases.older_client import OlderClient, accepting
from tests.cases.stack import Stack
from tests.encryption import CONVERTER
from tests.stdio.client import request, stdio_client
from tests.support import eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")

SHIPPED: Final = "bridge.shipped"
ARGUMENTS: Final = {"application": "shop", "release": "2"}
APPROVAL: Final = {"approve": True, "note": "go"}


@dataclass
class Deployment:
    """A worker, two bridges of one deployment, and the application that is deployed."""

    stack: Stack
    root: Path
    health_url: str
    urls: list[str]
    engine: Client

    def afresh(self) -> None:
        """Release 1 is live again."""
        shutil.rmtree(self.root, ignore_errors=True)
        self.root.mkdir()
        shop = make_application(self.root, self.health_url)
        (shop / "deploy.toml").write_text(f'health_url = "{self.health_url}"\nhealth_seconds = 10\n')

    async def runs(self) -> list[WorkflowExecution]:
        return [run async for run in self.engine.list_workflows("WorkflowType = 'deploy_release'")]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def deployment(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Deployment]:
    async def well(_request: web.Request) -> web.Response:
        return web.Response(text="well\n")

    app = web.Application()
    app.router.add_get("/health", well)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, LOOPBACK, 0).start()
    try:
        root = tmp_path_factory.mktemp("deploy") / "root"
        variables: dict[str, Any] = {ROOT_VARIABLE: str(root), "MCP_TASKS_TASK_QUEUE": "shipped"}
        await stack.worker(SHIPPED, **variables)
        bridges = [await stack.bridge(SHIPPED, MCP_TASKS_TASK_QUEUE="shipped") for _ in range(2)]
        yield Deployment(
            stack,
            root,
            f"http://{LOOPBACK}:{runner.addresses[0][1]}/health",
            [bridge.url for bridge in bridges],
            await Client.connect(stack.temporal.address, data_converter=CONVERTER),
        )
    finally:
        await runner.cleanup()


async def tasks_client(deployment: Deployment) -> dict[str, Any]:
    """Declares the Tasks extension: a handle, then polls and an update, each at another replica."""
    async with McpClient(deployment.urls[0]) as first, McpClient(deployment.urls[1]) as second:
        task_id = await first.start("deploy_release", ARGUMENTS)
        [key] = await second.parked(task_id)
        assert (await first.update(task_id, {key: accept(**APPROVAL)})).result == {"resultType": "complete"}
        return dict((await second.finished(task_id))["result"])


async def mrtr_client(deployment: Deployment) -> dict[str, Any]:
    """2026-07-28 without the extension: the question comes as a result, the answer goes with a retry elsewhere."""
    replicas = itertools.cycle(deployment.urls)
    state, responses = None, None
    while True:
        async with McpClient(next(replicas), FORMS) as client:
            result = (await client.call("deploy_release", ARGUMENTS, state=state, responses=responses)).result
        if result["resultType"] == "complete":
            return result
        state, responses = result["requestState"], {key: accept(**APPROVAL) for key in result["inputRequests"]}


async def older_client(deployment: Deployment, version: str) -> dict[str, Any]:
    """A handshake; the question comes in the middle of the call, and its answer goes to the other replica."""
    async with OlderClient(deployment.urls, version) as client:
        message = await client.call("deploy_release", ARGUMENTS, accepting(**APPROVAL))
    return dict(message["result"])


async def over_stdio(deployment: Deployment) -> dict[str, Any]:
    """2026-07-28 without the extension, over the pipes of a process of its own."""
    environment = {**deployment.stack.environment, "MCP_TASKS_TASK_QUEUE": "shipped"}
    async with stdio_client(environment, tasks=SHIPPED) as server:
        more: dict[str, Any] = {}
        while True:
            params = {"name": "deploy_release", "arguments": ARGUMENTS, **more}
            result = await server.result(request("tools/call", params, capabilities=FORMS))
            if result["resultType"] == "complete":
                return dict(result)
            answers = {key: accept(**APPROVAL) for key in result["inputRequests"]}
            more = {"requestState": result["requestState"], "inputResponses": answers}


KINDS: Final[Mapping[str, Callable[[Deployment], Awaitable[dict[str, Any]]]]] = {
    "tasks": tasks_client,
    "MRTR": mrtr_client,
    "2025-11-25": partial(older_client, version="2025-11-25"),
    "2025-06-18": partial(older_client, version="2025-06-18"),
    "stdio": over_stdio,
}


@pytest.mark.parametrize("kind", KINDS)
async def test_every_client_gets_the_same_result_of_one_run(deployment: Deployment, kind: str) -> None:
    deployment.afresh()
    before = {run.id for run in await deployment.runs()}
    result = await KINDS[kind](deployment)
    result.pop("resultType", None)
    plan, approval = (result["structuredContent"].pop(name) for name in ("plan_digest", "approval"))
    assert plan
    assert approval["by"]["subject"] == "local"
    assert approval["by"]["channel"] == ("stdio" if kind == "stdio" else "http")
    assert result["structuredContent"] == {
        "outcome": "deployed",
        "switched": True,
        "live": "2",
        "previous": "1",
        "note": "go",
        "summary": "2 is live and passed its health check (HTTP 200).",
    }

    async def new() -> list[WorkflowExecution]:
        found = [run for run in await deployment.runs() if run.id not in before]
        return found if all(run.status is WorkflowExecutionStatus.COMPLETED for run in found) else []

    assert len(await eventually(new, what="the end of the run")) == 1
    await asyncio.sleep(1)  # a second run would be listed a little later
    assert len(await new()) == 1
