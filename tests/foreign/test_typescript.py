"""A worker built on `@temporalio/worker`: another language, the same contract."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from bridge.dev_server import DevServer
from tests.cases.client import McpClient, accept
from tests.encryption import KEYS
from tests.foreign.running import TYPESCRIPT, cataloged, foreign_worker, typescript
from tests.support import unique

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_workflow_with_positional_arguments_runs_to_its_end(posts: McpClient) -> None:
    task = await posts.finished(await posts.start("translate", {"text": "Hallo"}))
    assert task["result"]["structuredContent"] == {"text": "[en] Hallo", "language": "en"}


@pytest.mark.parametrize("answer", [True, False])
async def test_it_asks_and_is_answered(posts: McpClient, answer: bool) -> None:
    """By query alone: this workflow writes no snapshot."""
    task_id = await posts.start("publish_post", {"title": "News"})
    asked = await posts.parked(task_id)
    assert asked["publish"]["params"]["message"] == "Publish this post?"
    await posts.update(task_id, {"other": accept(publish=True)})
    await posts.update(task_id, {"publish": accept(publish=answer)})
    task = await posts.finished(task_id)
    assert task["result"]["structuredContent"] == {"title": "News", "published": answer}


@pytest.mark.parametrize(("tool", "arguments"), [("publish_post", {"title": "News"}), ("hold_place", {})])
async def test_it_is_cancelled(posts: McpClient, tool: str, arguments: dict[str, Any]) -> None:
    """Whether it has handlers or none."""
    task_id = await posts.start(tool, arguments)
    if tool == "publish_post":
        await posts.parked(task_id)
    await posts.cancel(task_id)
    assert (await posts.finished(task_id))["status"] == "cancelled"


@pytest.mark.parametrize("kind", ["mcp.ToolError", "DeskClosed"])
async def test_a_failure_that_is_meant_for_the_model_reaches_it(posts: McpClient, kind: str) -> None:
    task = await posts.finished(await posts.start("refuse", {"type": kind}))
    assert task["status"] == "completed" and task["result"]["isError"]
    assert task["result"]["content"][0]["text"] == "The desk is closed"


async def test_a_json_rpc_error_is_the_tasks(posts: McpClient) -> None:
    error = {"code": -32000, "message": "Closed", "data": {"opens": "2026-12-01"}}
    task = await posts.finished(await posts.start("refuse", {"type": "mcp.JsonRpcError", "details": [error]}))
    assert (task["status"], task["error"]) == ("failed", error)


async def test_a_worker_with_a_codec_of_its_own_reads_and_writes_what_is_encrypted(
    temporal: DevServer, posts: McpClient, tmp_path: Path
) -> None:
    """The same format by Node's `crypto`: arguments, the answer, the view by query, result and failure."""
    queue = unique("posts")
    catalog = tmp_path / "catalog.toml"
    catalog.write_text((TYPESCRIPT / "catalog.toml").read_text("utf-8").replace('"posts"', f'"{queue}"'), "utf-8")
    plain = await Client.connect(temporal.address)
    async with (
        foreign_worker(temporal, *typescript(TYPESCRIPT / "worker.ts"), queue=queue, keys=KEYS),
        cataloged(temporal, catalog, KEYS) as client,
    ):
        asking = await client.start("publish_post", {"title": "mark-title"})
        (key,) = await client.parked(asking)
        await client.update(asking, {key: accept(publish=True)})
        task = await client.finished(asking)
        assert task["result"]["structuredContent"] == {"title": "mark-title", "published": True}
        refused = await client.finished(await client.start("refuse", {"type": "DeskClosed"}))
        assert refused["result"]["content"][0]["text"] == "The desk is closed"
        for task_id, hidden in ((asking, ("mark-title", "published")), (refused["taskId"], ("The desk is closed",))):
            stored = str((await plain.get_workflow_handle(task_id).fetch_history()).events)
            assert "binary/encrypted" in stored
            assert not [text for text in hidden if text in stored]
