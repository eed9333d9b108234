"""What Temporal stores of a task tells a reader without keys nothing of what was said."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from bridge.dev_server import DevServer
from tests.cases.client import McpClient, accept
from tests.codec.conftest import Encrypted
from tests.codec.keys import FIRST, SECOND, converter
from tests.codec.tools import Carry
from tests.support import eventually, unique
from workflows.kit.contract import OWNER_ATTRIBUTE, STATUS_ATTRIBUTE, TOOL_ATTRIBUTE

pytestmark = pytest.mark.asyncio(loop_scope="session")

ARGUMENT, ANSWER = "mark-argument", "mark-answer"


async def heartbeat_of(client: McpClient, task_id: str) -> bool:
    """Whether a read shows what a running step last said."""
    return "mark-heartbeat" in (await client.get(task_id)).result.get("statusMessage", "")


@pytest.mark.parametrize("end", ["result", "tool error", "error", "step", "bug"])
async def test_a_history_is_opaque_and_the_task_is_not(encrypted: Encrypted, end: str) -> None:
    await encrypted.worker()
    bridge = await encrypted.bridge()
    seen = []
    async with McpClient(bridge.url) as client:
        task_id = await client.start("confide", {"secret": ARGUMENT, "end": end})
        await eventually(lambda: heartbeat_of(client, task_id), what="a heartbeat")
        seen.append(await encrypted.stored(task_id))
        asked = await client.parked(task_id)
        assert asked["answer"]["params"]["message"] == f"mark-question {ARGUMENT}?"
        seen.append(await encrypted.stored(task_id))
        await client.update(task_id, {"answer": accept(text=ANSWER)})
        task = await client.finished(task_id)
        seen.append(await encrypted.stored(task_id))
    assert (
        told(task)
        == {
            "result": {"said": f"whispered {ARGUMENT}", "answer": ANSWER},
            "tool error": f"mark-error {ANSWER}",
            "error": {"code": 4711, "message": f"mark-error {ANSWER}", "data": {"mark-detail": ARGUMENT}},
            "step": f"mark-error {ANSWER}",
            "bug": None,
        }[end]
    )
    assert not [stored for stored in seen if "mark-" in stored or "Traceback" in stored]
    assert all("binary/encrypted" in stored for stored in seen)
    attributes = (await encrypted.plain.get_workflow_handle(task_id).describe()).search_attributes
    assert attributes[TOOL_ATTRIBUTE] == ["confide"]
    assert attributes[STATUS_ATTRIBUTE] and attributes[OWNER_ATTRIBUTE]


def told(task: dict[str, Any]) -> Any:
    """The end of a task, without what a bug says of itself."""
    if "error" in task:
        return task["error"]
    result = task["result"]
    if not result.get("isError"):
        return result["structuredContent"]
    text = result["content"][0]["text"]
    return None if text.startswith("The tool failed because of an internal error") else text


async def test_the_history_of_a_task_is_readable_for_its_owner(encrypted: Encrypted) -> None:
    await encrypted.worker()
    bridge = await encrypted.bridge()
    async with McpClient(bridge.url) as client:
        task_id = await client.start("confide", {"secret": ARGUMENT})
        await client.parked(task_id)
        await client.update(task_id, {"answer": accept(text=ANSWER)})
        await client.finished(task_id)
        uri = f"mcp-task://{task_id}/history"
        reply = await client.request("resources/read", {"uri": uri}, headers={"Mcp-Name": uri})
    told_of = reply.result["contents"][0]["text"]
    assert f"mark-question {ARGUMENT}?" in told_of and "codec_whisper" in told_of


async def test_what_a_run_hands_on_to_the_next_one_is_opaque(temporal: DevServer, encrypted: Encrypted) -> None:
    """Arguments, memo, what was upserted, and the summaries that Temporal's web page shows."""
    client = await Client.connect(temporal.address, data_converter=converter(FIRST))
    queue, task_id = unique("carry"), unique("carry")
    async with Worker(client, task_queue=queue, workflows=[Carry]):
        handle = await client.start_workflow(
            Carry.run,
            args=["mark-argument", True],
            id=task_id,
            task_queue=queue,
            memo={"note": "mark-memo"},
            static_summary="mark-summary",
        )
        assert await handle.result() == "mark-argument"
    first = handle.first_execution_run_id
    assert first is not None
    for run_id in (first, None):
        history = await encrypted.plain.get_workflow_handle(task_id, run_id=run_id).fetch_history()
        assert "mark-" not in history.to_json() and "mark-" not in str(history.events)
    latest = await client.get_workflow_handle(task_id).describe()
    assert (await latest.memo())["note"] == "mark-note mark-argument"


# Rotation, and histories that are not all of one kind


async def test_keys_are_changed_while_tasks_are_open(encrypted: Encrypted) -> None:
    """In three rollouts, workers before bridges or after them; each task is answered under a later ring."""
    opened = list[str]()
    for ring in ("", FIRST, f"{FIRST},{SECOND}", f"{SECOND},{FIRST}"):
        worker, bridge = await encrypted.worker(ring), await encrypted.bridge(ring)
        async with McpClient(bridge.url) as client:
            for task_id in opened[-1:]:
                await client.update(task_id, {"answer": accept(text=ANSWER)})
                await client.finished(task_id)
            opened.append(await client.start("confide", {"secret": ARGUMENT}))
            await client.parked(opened[-1])
        await asyncio.gather(worker.stop(), bridge.stop())
    await encrypted.worker(f"{SECOND},{FIRST}")
    bridge = await encrypted.bridge(f"{SECOND},{FIRST}")
    async with McpClient(bridge.url) as client:
        await client.update(opened[-1], {"answer": accept(text=ANSWER)})
        for task_id in opened:
            assert told(await client.finished(task_id)) == {"said": f"whispered {ARGUMENT}", "answer": ANSWER}
    stored = [await encrypted.stored(task_id) for task_id in opened]
    assert ["autumn" in text for text in stored] == [True, True, True, False]
    assert ["winter" in text for text in stored] == [False, False, True, True]


async def test_a_bridge_without_the_key_says_that_nothing_is_known(encrypted: Encrypted) -> None:
    """Not that there is no such task: its client would forget it."""
    await encrypted.worker()
    bridge, other = await encrypted.bridge(), await encrypted.bridge(SECOND)
    async with McpClient(bridge.url) as client, McpClient(other.url) as blind:
        task_id = await client.start("confide", {"secret": ARGUMENT})
        await client.parked(task_id)
        reply = await blind.get(task_id)
        assert (reply.code, reply.message["error"]["data"]) == (-32603, {"retryAfterMs": 1000})


async def test_a_worker_without_the_key_spoils_nothing(encrypted: Encrypted) -> None:
    """The task waits for one that has it."""
    blind = await encrypted.worker(SECOND)
    bridge = await encrypted.bridge()
    async with McpClient(bridge.url) as client:
        task_id = await client.start("confide", {"secret": ARGUMENT})

        async def tried() -> bool:
            pending = (await encrypted.plain.get_workflow_handle(task_id).describe()).raw_description
            return pending.pending_workflow_task.attempt > 1

        await eventually(tried, what="a failed workflow task")
        assert (await client.get(task_id)).result["status"] == "working"
        await blind.stop()
        await encrypted.worker()
        await client.parked(task_id)
