"""What is large stays an answer or a clear error when it is encrypted: nothing is tried for ever."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from temporalio.client import Client

from bridge.dev_server import DevServer
from bridge.gateway import Gateway
from tests.cases.client import McpClient, accept
from tests.codec.conftest import Encrypted
from tests.codec.keys import converter, key
from tests.support import unique
from workflows.kit.contract import MAX_MESSAGE_CHARS, MAX_PAYLOAD_BYTES, Principal, TaskMemo

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize("end", ["escapes", "step escapes"])
async def test_a_message_that_json_makes_longer_is_cut(encrypted: Encrypted, end: str) -> None:
    """The text of a failure is encrypted as JSON, whose escapes make more of it."""
    await encrypted.worker()
    bridge = await encrypted.bridge()
    async with McpClient(bridge.url) as client:
        task_id = await client.start("confide", {"secret": "s", "end": end})
        await client.parked(task_id)
        await client.update(task_id, {"answer": accept(text="a")})
        result = (await client.finished(task_id))["result"]
    text = result["content"][0]["text"]
    assert result["isError"] and text.startswith("mark-error \x01\x01") and len(text) <= MAX_MESSAGE_CHARS + 100


@pytest.mark.parametrize("size", [MAX_PAYLOAD_BYTES - 200, 1_000_000])
async def test_the_largest_arguments_and_answers_fit(encrypted: Encrypted, size: int) -> None:
    await encrypted.worker()
    bridge = await encrypted.bridge()
    async with McpClient(bridge.url) as client:
        task_id = await client.start("confide", {"secret": "x" * size, "end": "bug"})
        assert (await client.get(task_id)).result["status"] == "working"
        await client.cancel(task_id)


@pytest.mark.parametrize("title", ["x" * 500, "é" * 500, "世" * 500, "\U0001f600" * 500, '"' * 70])
async def test_a_long_title_does_not_keep_a_task_from_its_start(temporal: DevServer, title: str) -> None:
    """Temporal bounds the summary that its web page shows, as it is stored."""
    memo = TaskMemo(
        tool="tool",
        owner=Principal(issuer="local", subject="tester"),
        arguments_digest="0",
        created_at=datetime.now(UTC),
        era="2026-07-28",
        client_capabilities={},
        delivery="task",
    )
    ring = converter(key("k" * 64, "a"))
    gateway = await Gateway.connect(
        {"target_host": temporal.address, "namespace": "default"}, owner_key=b"k" * 32, data_converter=ring
    )
    task_id = unique("task")
    assert await gateway.start(
        task_id=task_id, workflow_type="none", task_queue=unique("none"), arguments=[{}], memo=memo, title=title
    )
    handle = (await Client.connect(temporal.address, data_converter=ring)).get_workflow_handle(task_id)
    summary = await (await handle.describe()).static_summary()
    assert summary is not None and title.startswith(summary) and len(summary) >= 37
    await handle.terminate()
