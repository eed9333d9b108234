"""Starts, signals and cancels, and what their failures become."""

from __future__ import annotations

import asyncio
import sys
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.testing import WorkflowEnvironment

from bridge.errors import EngineRefused, EngineUnavailable, TaskNotFound, TooLarge
from bridge.status import Live
from tests.gateway.conftest import OWNER, Bridge, make_bridge
from workflows.kit.contract import MAX_PAYLOAD_BYTES, Principal, UpdateSignal


async def test_a_started_task_can_be_read_at_once_and_carries_its_memo_and_search_attributes(bridge: Bridge) -> None:
    task = await bridge.start("asker", {"rounds": []}, tool="deploy", lifetime_ms=60_000)
    state = await bridge.read(task)
    assert isinstance(state, Live)
    assert (state.status, state.memo.tool, state.ttl_ms) == ("working", "deploy", 60_000)
    described = await bridge.client.get_workflow_handle(task).describe()
    values = {pair.key.name: pair.value for pair in described.typed_search_attributes}
    assert values == {"McpTool": "deploy", "McpTaskStatus": "working", "McpOwner": bridge.gateway.owner_hash(OWNER)}
    assert await described.static_summary() == "A tool"


async def test_the_owners_hash_is_keyed_and_does_not_depend_on_the_client(bridge: Bridge) -> None:
    assert len(bridge.gateway.owner_hash(OWNER)) == 32
    same = Principal(issuer=OWNER.issuer, subject=OWNER.subject, client="another")
    assert bridge.gateway.owner_hash(same) == bridge.gateway.owner_hash(OWNER)
    other = Principal(issuer=OWNER.issuer, subject="other")
    assert bridge.gateway.owner_hash(other) != bridge.gateway.owner_hash(OWNER)


async def test_an_id_in_use_starts_no_second_run(served: Bridge) -> None:
    task = await served.start("ender", {"how": "return", "value": 1})

    async def again() -> bool:
        return await served.gateway.start(
            task_id=task, workflow_type="ender", task_queue=served.queue, arguments=[{}], memo=served.memo()
        )

    assert await again() is False
    await served.ended(task)
    assert await again() is False


async def test_a_signal_given_with_the_start_arrives_before_the_first_question(bridge: Bridge) -> None:
    task = await bridge.start("asker", {"rounds": [], "hold": True}, signal=UpdateSignal(responses={"release": {}}))
    async with bridge.worker():
        state = await bridge.ended(task)
    assert state.result is not None
    assert state.result["content"][0]["text"] == "release"


async def test_arguments_reach_the_workflow_unchanged(served: Bridge) -> None:
    value = {"text": "✓ \u0000", "list": [1, 2.5, None, {"deep": True}]}
    state = await served.ended(await served.start("ender", {"how": "return", "value": value}))
    assert state.result is not None
    assert state.result["structuredContent"] == value


@pytest.mark.parametrize("size", [MAX_PAYLOAD_BYTES + 1, 4_500_000])
async def test_arguments_that_are_too_large_are_refused_with_the_limit_and_start_nothing(
    bridge: Bridge, size: int
) -> None:
    with pytest.raises(TooLarge) as caught:
        await bridge.start("ender", {"value": "x" * size})
    assert caught.value.code == -32602
    assert str(MAX_PAYLOAD_BYTES) in caught.value.message


async def test_a_memo_that_is_too_large_is_refused_by_temporal_and_reads_the_same(bridge: Bridge) -> None:
    with pytest.raises(TooLarge):
        await bridge.start("ender", {}, tool="x" * 2_200_000)


async def test_a_request_that_temporal_refuses_is_not_worth_a_retry(bridge: Bridge) -> None:
    with pytest.raises(EngineRefused) as caught:
        await bridge.gateway.start(
            task_id="x" * 1100, workflow_type="ender", task_queue=bridge.queue, arguments=[{}], memo=bridge.memo()
        )
    assert (caught.value.code, caught.value.data) == (-32603, None)


async def test_every_call_for_an_unknown_id_says_the_same(bridge: Bridge) -> None:
    nobody = f"t-{uuid.uuid4().hex}"
    calls: list[Any] = [
        lambda: bridge.read(nobody),
        lambda: bridge.answer(nobody, "a"),
        lambda: bridge.gateway.request_cancel(nobody, "p"),
        lambda: bridge.gateway.close_event(nobody, ""),
        lambda: anext(bridge.gateway.follower(nobody, asyncio.Semaphore()).moments()),
    ]
    for call in calls:
        with pytest.raises(TaskNotFound) as caught:
            await call()
        assert (caught.value.code, caught.value.message, caught.value.data) == (-32602, "Task not found", None)


@pytest.mark.parametrize("task_id", ["", "x" * 1000, "x" * 1001, "ä" * 501, "a\nb", "\ud800", "✓"])
async def test_an_id_that_can_belong_to_no_task_is_not_found_like_any_other(bridge: Bridge, task_id: str) -> None:
    with pytest.raises(TaskNotFound):
        await bridge.read(task_id)


async def test_a_namespace_that_does_not_exist_is_an_outage(temporal: str) -> None:
    bridge = await make_bridge(temporal, namespace="nowhere")
    calls: list[Any] = [
        lambda: bridge.read("t"),
        lambda: bridge.start("ender", {}),
        lambda: bridge.answer("t", "a"),
        lambda: bridge.gateway.request_cancel("t", "p"),
        lambda: bridge.gateway.check(),
    ]
    for call in calls:
        with pytest.raises(EngineUnavailable) as caught:
            await call()
        assert (caught.value.code, caught.value.data) == (-32603, {"retryAfterMs": 1000})


async def test_answers_to_a_closed_task_are_not_delivered_and_no_error(served: Bridge) -> None:
    task = await served.start("ender", {"how": "return", "value": 1})
    await served.ended(task)
    assert await served.answer(task, "a") is False
    await served.gateway.request_cancel(task, "p")


async def test_a_cancel_says_who_asked_in_the_history(served: Bridge) -> None:
    task = await served.start("ender", {"how": "return", "value": 1, "wait": "cancel"})
    await served.gateway.request_cancel(task, "p-opaque")
    await served.gateway.request_cancel(task, "p-opaque")
    assert (await served.ended(task)).status == "cancelled"
    history = await served.client.get_workflow_handle(task).fetch_history()
    requests = [e for e in history.events if e.HasField("workflow_execution_cancel_requested_event_attributes")]
    assert [e.workflow_execution_cancel_requested_event_attributes.cause for e in requests] == ["p-opaque"]


async def test_a_run_is_the_same_object_until_temporal_tells_something_new_of_it(served: Bridge) -> None:
    task = await served.start("asker", {"rounds": [["a", "b"]]})
    await served.parked(task, "a", "b")
    run = await served.settled(task)
    assert await served.described(task) is run
    await served.answer(task, "a")
    await served.parked(task, "b")
    answered = await served.settled(task)
    assert answered.history_length > run.history_length
    assert await served.described(task) is answered


async def test_a_run_larger_than_all_that_may_be_remembered_is_read_anew(
    served: Bridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bridge.gateway.RUN_CACHE_BYTES", 1_000)
    task = await served.start("asker", {"rounds": [["a"]]})
    await served.parked(task, "a")
    run = await served.settled(task)
    assert await served.described(task) is not run
    assert not served.gateway._runs


async def test_retention_is_asked_once(bridge: Bridge) -> None:
    assert (await bridge.gateway.retention()).total_seconds() == 24 * 3600
    assert await bridge.gateway.retention() is await bridge.gateway.retention()


async def test_a_cluster_without_the_search_attributes_serves_tasks_too(temporal_without_attributes: str) -> None:
    bridge = await make_bridge(temporal_without_attributes)
    async with bridge.worker():
        task = await bridge.start("ender", {"how": "return", "value": 1})
        assert (await bridge.ended(task)).status == "completed"
    described = await bridge.client.get_workflow_handle(task).describe()
    assert "McpTool" not in {pair.key.name for pair in described.typed_search_attributes}


async def test_attributes_that_vanished_are_left_out(temporal_without_attributes: str) -> None:
    bridge = await make_bridge(temporal_without_attributes)
    bridge.gateway._attributes._available = True  # as after a check that is no longer true
    assert isinstance(await bridge.read(await bridge.start("ender", {})), Live)


@pytest.fixture
async def temporal_without_attributes() -> AsyncIterator[str]:
    async with await WorkflowEnvironment.start_local(
        dev_server_existing_path=str(Path(sys.executable).parent / "temporal")
    ) as environment:
        yield environment.client.service_client.config.target_host
