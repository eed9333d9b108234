"""The SDK's OpenTelemetry spans: there for a deployment that collects them, and no cost to others."""

from __future__ import annotations

import pytest
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity

from bridge.catalog import Catalog
from bridge.server import extended_server
from tests.cases.client import McpClient
from tests.cases.stack import Programs

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_each_request_is_a_span_where_the_tasks_module_sets_a_tracer_provider(programs: Programs) -> None:
    async with McpClient((await programs.bridge("tests.extension.tracing")).url) as client:
        await client.request("server/discover")
        await client.get("no-such-task")
        listed = (await client.request("prompts/list")).result["prompts"]
    assert [prompt["name"] for prompt in listed] == ["server/discover", "tasks/get", "prompts/list"]


async def test_no_span_is_made_where_nobody_collects_them() -> None:
    server = extended_server(Catalog([]), RequestStateSecurity(keys=["k" * 32]), None)
    assert [type(middleware) for middleware in server.middleware] == [RequestStateBoundary]
