"""Ended tasks on a real server: the table's rows as Temporal records them, and what stays true afterwards."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import Any

import pytest

from bridge.errors import TaskNotFound
from bridge.reader import Reader
from bridge.status import Terminal
from bridge.watches import Watches
from tests.gateway.conftest import TESTER, Bridge, rules
from tests.support import eventually
from workflows.kit.contract import EXPIRED, JSONRPC_ERROR, MAX_DEPTH, TOOL_ERROR

TEXT = {"type": "text", "text": "hello"}


def raising(type_: str, message: str = "why", *details: Any) -> dict[str, Any]:
    return {"how": "raise", "type": type_, "message": message, "details": list(details)}


def text_of(state: Terminal) -> tuple[bool, str]:
    assert state.status == "completed"
    assert state.result is not None
    return bool(state.result.get("isError")), state.result["content"][0]["text"]


async def test_a_returned_call_tool_result_is_the_tasks_result(served: Bridge) -> None:
    task = await served.start("ender", {"how": "return", "value": {"content": [TEXT]}})
    assert (await served.ended(task)).result == {"content": [TEXT], "resultType": "complete"}


@pytest.mark.parametrize("levels", [MAX_DEPTH - 1, MAX_DEPTH, MAX_DEPTH + 1, 230])
async def test_a_result_may_be_as_deep_as_the_contract_says_and_is_a_tool_error_beyond(
    served: Bridge, levels: int
) -> None:
    value = (await served.ended(await served.start("ender", {"how": "deep", "levels": levels}))).result
    assert value is not None
    if levels > MAX_DEPTH:
        assert value["isError"] is True
        assert str(MAX_DEPTH) in value["content"][0]["text"]
        return
    nested = value["structuredContent"]
    for _ in range(levels):
        (nested,) = nested
    assert nested == "bottom"


@pytest.mark.parametrize("value", [None, "plain", [1, 2]])
async def test_any_returned_value_ends_as_a_result(served: Bridge, value: Any) -> None:
    task = await served.start("ender", {"how": "return", "value": value})
    state = await served.ended(task)
    assert state.result is not None
    assert state.result.get("structuredContent") == value


async def test_a_tool_error_is_a_completed_task(served: Bridge) -> None:
    task = await served.start("ender", raising(TOOL_ERROR, "no such user"))
    assert text_of(await served.ended(task)) == (True, "no such user")


async def test_a_json_rpc_error_is_a_failed_task_with_exactly_that_error(served: Bridge) -> None:
    error = {"code": -32602, "message": "bad ✓", "data": {"k": [1, None]}}
    state = await served.ended(await served.start("ender", raising(JSONRPC_ERROR, "bad ✓", error)))
    assert (state.status, state.error) == ("failed", error)


async def test_an_expired_task_is_failed(served: Bridge) -> None:
    state = await served.ended(await served.start("ender", raising(EXPIRED, "over")))
    assert (state.status, state.status_message) == ("failed", "over")


async def test_a_bug_is_logged_under_the_reference_that_every_replica_shows(
    served: Bridge, replica: Bridge, caplog: pytest.LogCaptureFixture
) -> None:
    task = await served.start("ender", {"how": "bug"})
    with caplog.at_level(logging.ERROR):
        failed, text = text_of(await served.ended(task))
    assert failed
    assert "secret" not in text
    record = next(record for record in caplog.records if record.message == "task.bug")
    assert text.endswith(record.__dict__["reference"])
    assert any("secret detail" in line for line in record.__dict__["failure"])
    assert await replica.read(task) == await served.read(task)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"type": TOOL_ERROR, "message": "no table", "non_retryable": True}, "no table"),
        ({"message": "no table"}, "no table"),
        ({"type": "AcmeError", "message": "no table"}, "no table"),
        ({"type": "Whatever", "message": "no table", "non_retryable": True}, "no table"),
        ({"type": "Whatever", "message": "no table"}, "The tool failed because of an internal error."),
        ({"plain": True, "message": "no table"}, "The tool failed because of an internal error."),
    ],
)
async def test_an_activitys_error_is_shown_if_the_author_declared_it(
    served: Bridge, arguments: dict[str, Any], text: str
) -> None:
    failed, shown = text_of(await served.ended(await served.start("ender", {"how": "activity", **arguments})))
    assert failed
    assert shown.startswith(text)


async def test_a_childs_tool_error_is_shown(served: Bridge) -> None:
    task = await served.start("ender", {**raising(TOOL_ERROR, "no table"), "how": "child"})
    assert text_of(await served.ended(task)) == (True, "no table")


async def test_a_cancelled_run_is_a_cancelled_task(served: Bridge) -> None:
    task = await served.start("ender", {"how": "return", "value": 1, "wait": "cancel"})
    await served.settled(task)
    await served.gateway.request_cancel(task, "p-1")
    assert (await served.ended(task)).status == "cancelled"


async def test_a_task_may_complete_after_a_cancel(served: Bridge) -> None:
    task = await served.start("ender", {"how": "return", "value": 1, "wait": "finish"})
    await served.settled(task)
    await served.gateway.request_cancel(task, "p-1")
    assert (await served.ended(task)).status == "completed"


async def test_a_bug_while_unwinding_failed_while_stopping(served: Bridge) -> None:
    task = await served.start("ender", {"how": "bug", "wait": "finish"})
    await served.settled(task)
    await served.gateway.request_cancel(task, "p-1")
    state = await served.ended(task)
    assert (state.status, state.status_message) == ("failed", "The task failed while stopping")


async def test_a_cancellation_that_nobody_asked_for_is_a_bug(served: Bridge) -> None:
    failed, text = text_of(await served.ended(await served.start("ender", {"how": "cancelled"})))
    assert failed
    assert text.startswith("The tool failed because of an internal error.")


async def test_a_termination_names_its_reason_without_a_worker(bridge: Bridge) -> None:
    task = await bridge.start("mute", {})
    await bridge.client.get_workflow_handle(task).terminate(reason="cost too much")
    state = await bridge.ended(task)
    assert (state.status, state.status_message) == ("failed", "The task was terminated: cost too much")


async def test_a_timed_out_run_is_a_failed_task(bridge: Bridge) -> None:
    task = "t-timeout-" + bridge.queue
    await bridge.gateway.start(
        task_id=task,
        workflow_type="mute",
        task_queue=bridge.queue,
        arguments=[{}],
        memo=bridge.memo(),
        execution_timeout=timedelta(seconds=1),
    )
    state = await bridge.ended(task)
    assert state.status == "failed"
    assert state.error is not None
    assert state.error["code"] == -32603


async def test_an_outcome_is_read_once_and_the_same_for_every_replica(served: Bridge, replica: Bridge) -> None:
    task = await served.start("ender", {"how": "return", "value": {"rows": 3}})
    first = await served.ended(task)
    counts = (served.gateway.describes, served.gateway.close_reads)
    assert await served.read(task) is first
    assert (served.gateway.describes, served.gateway.close_reads) == counts
    assert await replica.read(task) == first
    assert first.ttl_ms == pytest.approx(24 * 3600 * 1000, abs=60_000)
    assert first.created_at <= first.last_updated_at == first.closed_at


async def test_a_deleted_task_is_not_found_like_an_unknown_one(served: Bridge) -> None:
    task = await served.start("ender", {"how": "return", "value": 1})
    await served.client.get_workflow_handle(task).result()
    await served.delete(task)
    with pytest.raises(TaskNotFound):
        await served.read(task)


async def test_a_kept_outcome_is_dropped_when_retention_ends(served: Bridge, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time cannot be moved on the server; a retention that is over already shows the same."""
    task = await served.start("ender", {"how": "return", "value": 1})

    async def over() -> timedelta:
        return timedelta(0)

    monkeypatch.setattr(served.gateway, "retention", over)
    await served.ended(task)
    reads = served.gateway.describes
    await served.read(task)
    assert served.gateway.describes == reads + 1


async def test_resetting_a_running_task_is_invisible(served: Bridge, replica: Bridge) -> None:
    task = await served.start("asker", {"rounds": [["a"]]})
    before = await served.parked(task, "a")
    run = await served.settled(task)
    await served.reset(task, run.run_id, 4)
    after = await served.parked(task, "a")
    assert after.created_at == before.created_at
    assert (await replica.parked(task, "a")).status == "input_required"
    await served.answer(task, "a")
    assert (await served.ended(task)).status == "completed"
    assert (await replica.ended(task)).status == "completed"


async def test_resetting_a_closed_task_does_not_bring_it_back(served: Bridge, replica: Bridge) -> None:
    """The first close decides, also for a replica that never saw it."""
    task = await served.start("asker", {"rounds": [["a"]]})
    await served.parked(task, "a")
    run = await served.settled(task)
    await served.answer(task, "a")
    first = await served.ended(task)
    new_run = await served.reset(task, run.run_id, 4)
    latest = await served.described(task)
    assert (latest.run_id, latest.closed_at) == (new_run, None)
    assert await served.read(task) == first
    assert await replica.read(task) == first
    assert await Reader(replica.gateway, Watches(replica.gateway), rules).read(task, TESTER) == first


async def test_the_first_close_decides_in_a_chain_of_runs_too(served: Bridge, replica: Bridge) -> None:
    """Continue-as-new, close, reset, continue-as-new again: the last run carries no trace of the reset itself."""
    task = await served.start("asker", {"rounds": [["a"], ["b"]], "continue_after": 1})
    await served.parked(task, "a")
    await served.answer(task, "a")
    await served.parked(task, "b")
    run = await served.settled(task)
    assert not run.first_of_chain
    await served.answer(task, "b")
    first = await served.ended(task)
    await served.reset(task, run.run_id, 4)

    async def back() -> bool:
        return (await replica.described(task)).closed_at is None

    await eventually(back, what="the reset run")
    assert await replica.read(task) == first


async def test_a_run_made_by_resetting_a_reset_running_task_after_its_close_is_not_the_task(
    served: Bridge, replica: Bridge
) -> None:
    task = await served.start("asker", {"rounds": [["a"]]})
    await served.parked(task, "a")
    second = await served.reset(task, (await served.settled(task)).run_id, 4)
    await served.parked(task, "a")
    await served.answer(task, "a")
    first = await served.ended(task)
    await served.reset(task, second, 6)
    assert (await replica.described(task)).closed_at is None
    assert await replica.read(task) == first


async def test_readers_of_an_ending_task_never_see_it_go_back(served: Bridge, replica: Bridge) -> None:
    task = await served.start("asker", {"rounds": [["a"]]})
    await served.parked(task, "a")
    ended = False

    async def poll(one: Bridge) -> None:
        nonlocal ended
        while True:
            seen_before = ended
            state = await one.read(task)
            if isinstance(state, Terminal):
                ended = True
                return
            assert not seen_before

    async with asyncio.TaskGroup() as group:
        for one in (served, replica) * 4:
            group.create_task(poll(one))
        await served.answer(task, "a")
