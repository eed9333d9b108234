"""The steps of a conditional read, and that none of them gives an answer older than the question."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from temporalio.api.workflowservice.v1 import PauseWorkflowExecutionRequest

from bridge.describe import Described
from bridge.errors import NotOpen, TaskNotFound
from bridge.reader import NO_WORKER, PAUSED
from bridge.rights import Right
from bridge.status import Live, Terminal
from tests.gateway.conftest import DEADLINE, OWNER, TESTER, Bridge, asked, make_bridge
from tests.support import eventually
from workflows.kit.contract import Principal, UpdateSignal


async def test_a_task_whose_first_workflow_task_has_not_run_is_working_without_a_query(bridge: Bridge) -> None:
    task = await bridge.start("asker", {"rounds": [["a"]]})
    await bridge.answer(task, "early")
    state = await bridge.read(task)
    assert isinstance(state, Live)
    assert (state.status, state.status_message, bridge.gateway.queries) == ("working", None, 0)
    assert not state.taken_up


async def test_a_parked_task_is_read_from_its_snapshot_without_a_query(served: Bridge, replica: Bridge) -> None:
    task = await served.start("asker", {"rounds": [["a", "b"]]})
    await served.parked(task, "a", "b")
    await served.settled(task)
    for _ in range(5):
        assert asked(await replica.read(task)) == {"a", "b"}
    assert (replica.gateway.queries, replica.gateway.describes) == (0, 5)


async def test_reading_is_pure(served: Bridge) -> None:
    task = await served.start("asker", {"rounds": [["a"]], "publish": False})
    first = await served.parked(task, "a")
    length = (await served.settled(task)).history_length
    for _ in range(5):
        assert await served.read(task) == first
    assert (await served.described(task)).history_length == length


@pytest.mark.parametrize("arguments", [{"publish": False}, {"omit": True}], ids=["no snapshot", "snapshot too large"])
async def test_without_a_snapshot_one_query_serves_all_reads_until_something_happens(
    served: Bridge, arguments: dict[str, Any]
) -> None:
    task = await served.start("asker", {"rounds": [["a", "b"]], **arguments})
    await served.parked(task, "a", "b")
    await served.settled(task)
    await served.read(task)
    queries = served.gateway.queries
    for _ in range(5):
        assert asked(await served.read(task)) == {"a", "b"}
    assert served.gateway.queries == queries
    await served.answer(task, "a")
    assert asked(await served.read(task)) == {"b"}
    assert served.gateway.queries > queries


async def test_a_view_of_a_run_that_is_done_is_not_shown(served: Bridge) -> None:
    view = {"v": 1, "status": "working", "changedAt": "2026-11-30T09:15:42Z", "ended": True}
    task = await served.start("junk", {"view": view})
    run = await served.settled(task)
    with pytest.raises(NotOpen):
        await served.gateway.query_view(task, run.run_id)


async def test_a_working_task_is_queried(served: Bridge) -> None:
    task = await served.start("asker", {"rounds": [["a"]], "hold": True})
    await served.parked(task, "a")
    await served.answer(task, "a")
    state = await served.read(task)
    assert isinstance(state, Live)
    assert (state.status, state.status_message) == ("working", None)
    await served.answer(task, "release")
    assert (await served.ended(task)).status == "completed"


async def test_a_working_task_that_publishes_every_change_is_not_queried(served: Bridge, replica: Bridge) -> None:
    task = await served.start("asker", {"rounds": [["a"]], "hold": True, "every": True})
    await served.parked(task, "a")
    await served.answer(task, "a")
    for bridge in (served, replica):
        state = await bridge.read(task)
        assert isinstance(state, Live)
        assert (state.status, state.status_message) == ("working", None)
    await served.answer(task, "release")
    assert (await served.ended(task)).status == "completed"
    assert served.gateway.queries + replica.gateway.queries == 0


async def test_a_task_that_publishes_every_change_is_queried_for_a_view_that_is_too_large(served: Bridge) -> None:
    task = await served.start("asker", {"rounds": [["a"]], "every": True, "omit": True})
    await served.parked(task, "a")
    assert served.gateway.queries > 0


async def test_a_pending_workflow_task_that_nobody_works_on_is_waited_for_once(bridge: Bridge) -> None:
    async with bridge.worker():
        task = await bridge.start("asker", {"rounds": [["a", "b"]], "every": True})
        await bridge.parked(task, "a", "b")
        await bridge.settled(task)
    await bridge.answer(task, "a")
    bridge.reader.acknowledged(task, ["a"])
    described = list[int]()
    for _ in range(3):
        before = bridge.gateway.describes
        state = await bridge.read(task)
        assert isinstance(state, Live)
        assert (asked(state), state.status_message) == ({"b"}, NO_WORKER)
        described.append(bridge.gateway.describes - before)
    assert described[-1] < described[0] / 2, "the second may wait again: a sticky queue's timeout makes it another one"
    assert bridge.gateway.queries == 0
    async with bridge.worker():
        assert (await bridge.parked(task, "b")).status_message is None


async def test_a_workflow_without_handlers_is_working_and_can_be_cancelled(served: Bridge) -> None:
    task = await served.start("mute", {})
    await served.settled(task)
    state = await served.read(task)
    assert isinstance(state, Live)
    assert (state.status, state.status_message, state.last_updated_at) == ("working", None, state.created_at)
    await served.gateway.request_cancel(task, "p")
    assert (await served.ended(task)).status == "cancelled"


@pytest.mark.parametrize("arguments", [{"view": "junk"}, {"view": {"status": "dancing"}}, {"raise": True}])
async def test_an_unusable_view_is_working(served: Bridge, arguments: dict[str, Any]) -> None:
    task = await served.start("junk", arguments)
    await served.settled(task)
    state = await served.read(task)
    assert isinstance(state, Live)
    assert (state.status, state.status_message) == ("working", None)


async def test_a_running_activitys_heartbeat_is_progress(served: Bridge) -> None:
    task = await served.start("beater", {"report": {"progress": 3, "total": 10, "message": "rows"}})

    async def reported() -> Live | None:
        state = await served.read(task)
        return state if isinstance(state, Live) and state.progress else None

    state = await eventually(reported, what="the heartbeat")
    assert (state.status_message, state.progress[-1].total) == ("3/10 rows", 10)
    await served.gateway.request_cancel(task, "p")


async def test_a_heartbeat_that_is_not_progress_is_ignored(served: Bridge) -> None:
    task = await served.start("beater", {"report": "alive"})

    async def beating() -> bool:
        described = await served.client.get_workflow_handle(task).describe()
        return any(one.heartbeat_details.payloads for one in described.raw_description.pending_activities)

    await eventually(beating, what="the heartbeat")
    state = await served.read(task)
    assert isinstance(state, Live)
    assert (state.status_message, state.progress) == ("copying", ())
    await served.gateway.request_cancel(task, "p")


async def test_only_its_owner_can_read_a_task(bridge: Bridge) -> None:
    task = await bridge.start("asker", {"rounds": []})
    for stranger in (Principal(issuer="local", subject="x"), Principal(issuer="x", subject=OWNER.subject)):
        with pytest.raises(TaskNotFound):
            await bridge.read(task, stranger)
    same = Principal(issuer=OWNER.issuer, subject=OWNER.subject, client="another")
    assert (await bridge.read(task, same)).status == "working"


async def test_an_ended_task_is_hidden_from_others_too(served: Bridge) -> None:
    task = await served.start("ender", {"how": "return", "value": 1})
    await served.ended(task)
    with pytest.raises(TaskNotFound):
        await served.read(task, Principal(issuer="local", subject="x"))


@pytest.mark.parametrize("memo", [None, {"mcp_task": "junk"}, {"mcp_task": {"v": 1}}, {"other": 1}])
async def test_a_workflow_without_our_memo_is_no_task(bridge: Bridge, memo: dict[str, Any] | None) -> None:
    task = f"foreign-{bridge.queue}"
    await bridge.client.start_workflow("asker", {"rounds": []}, id=task, task_queue=bridge.queue, memo=memo)
    with pytest.raises(TaskNotFound):
        await bridge.read(task)


async def test_without_a_worker_a_parked_task_still_asks_exactly(bridge: Bridge) -> None:
    async with bridge.worker():
        task = await bridge.start("asker", {"rounds": [["a"]]})
        await bridge.parked(task, "a")
    state = await bridge.read(task)
    assert isinstance(state, Live)
    assert (asked(state), state.status_message) == ({"a"}, None)


async def test_without_a_worker_answered_questions_are_not_asked_again_and_the_message_says_why(bridge: Bridge) -> None:
    async with bridge.worker():
        task = await bridge.start("asker", {"rounds": [["a", "b"]]})
        await bridge.parked(task, "a", "b")
        await bridge.settled(task)
    assert await bridge.answer(task, "a")
    bridge.reader.acknowledged(task, ["a"])
    state = await bridge.read(task)
    assert isinstance(state, Live)
    assert (asked(state), state.status_message) == ({"b"}, NO_WORKER)
    async with bridge.worker():
        assert (await bridge.parked(task, "b")).status_message is None
        await bridge.settled(task)
        assert asked(await bridge.read(task)) == {"b"}
        assert task not in bridge.reader._acknowledged
        await bridge.answer(task, "b")
        assert (await bridge.ended(task)).status == "completed"


async def test_without_a_worker_the_last_view_serves_a_task_without_a_snapshot(bridge: Bridge) -> None:
    async with bridge.worker():
        task = await bridge.start("asker", {"rounds": [["a", "b"]], "publish": False})
        await bridge.parked(task, "a", "b")
        await bridge.settled(task)
        await bridge.read(task)
    await bridge.answer(task, "a")
    bridge.reader.acknowledged(task, ["a"])
    assert asked(await bridge.read(task)) == {"b"}


async def test_without_a_worker_a_view_from_before_an_answer_that_was_worked_in_is_not_the_last_known(
    bridge: Bridge,
) -> None:
    async with bridge.worker():
        task = await bridge.start("asker", {"rounds": [["a", "b"]], "publish": False})
        await bridge.parked(task, "a", "b")
        await bridge.settled(task)
        await bridge.read(task)
        await bridge.answer(task, "a")
        bridge.reader.acknowledged(task, ["a"])
        await bridge.settled(task)
        await bridge.reader.check(task, TESTER)
    state = await bridge.read(task)
    assert isinstance(state, Live)
    assert (asked(state), state.questions_known, state.status_message) == (set(), False, NO_WORKER)


async def test_without_a_worker_a_describe_that_was_overtaken_by_a_later_one_asks_no_answered_question(
    bridge: Bridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bridge.worker():
        task = await bridge.start("asker", {"rounds": [["a", "b"]]})
        await bridge.parked(task, "a", "b")
        await bridge.settled(task)
    await bridge.answer(task, "a")
    bridge.reader.acknowledged(task, ["a"])
    sent_first = await bridge.gateway.describe(task)

    async def arrives_last(_task_id: str, _run_id: str = "") -> Described:
        monkeypatch.undo()
        async with bridge.worker():
            await bridge.settled(task)
            await bridge.read(task)
        assert task not in bridge.reader._acknowledged
        return sent_first

    monkeypatch.setattr(bridge.gateway, "describe", arrives_last)
    seen = await bridge.reader._last_known(task, TESTER, Right.READ)
    assert asked(seen.state) == {"b"}


async def test_a_view_from_before_a_snapshot_is_not_kept(served: Bridge) -> None:
    task = await served.start("asker", {"rounds": [["a", "b"]], "omit_first": True})
    await served.parked(task, "a", "b")
    assert task in served.reader._views
    await served.answer(task, "a")
    await served.settled(task)
    assert asked(await served.read(task)) == {"b"}
    assert task not in served.reader._views


async def test_an_answer_without_a_worker_is_never_kept(bridge: Bridge) -> None:
    async with bridge.worker():
        task = await bridge.start("asker", {"rounds": [["a"]], "publish": False, "hold": True})
        await bridge.parked(task, "a")
        await bridge.settled(task)
        await bridge.answer(task, "a")
        await bridge.settled(task)
    first = await bridge.read(task)
    assert isinstance(first, Live)
    assert first.taken_up
    async with bridge.worker():
        state = await bridge.read(task)
        assert isinstance(state, Live)
        assert state.status_message is None


async def test_a_replica_that_knows_nothing_of_the_questions_says_so(bridge: Bridge, replica: Bridge) -> None:
    async with bridge.worker():
        task = await bridge.start("asker", {"rounds": [["a"]], "publish": False})
        await bridge.parked(task, "a")
        await bridge.settled(task)
    state = await replica.read(task)
    assert isinstance(state, Live)
    assert (state.status, state.status_message, state.questions_known) == ("working", NO_WORKER, False)


async def test_a_task_that_ends_while_a_read_waits_for_a_worker_is_read_as_ended(bridge: Bridge) -> None:
    async with bridge.worker():
        task = await bridge.start("asker", {"rounds": [], "hold": True})
        await bridge.settled(task)
    reading = asyncio.create_task(bridge.read(task))

    async def asking() -> bool:
        return bridge.gateway.queries > 0

    await eventually(asking, what="the query")
    await bridge.client.get_workflow_handle(task).terminate(reason="enough")
    assert isinstance(await reading, Terminal)


async def test_many_readers_on_two_replicas_without_a_worker_all_answer_in_time(
    bridge: Bridge, replica: Bridge
) -> None:
    """Temporal refuses the second of two queries for one workflow with RESOURCE_EXHAUSTED."""
    async with bridge.worker():
        task = await bridge.start("asker", {"rounds": [["a"]]})
        await bridge.parked(task, "a")
        await bridge.settled(task)
    await bridge.answer(task, "a")
    async with asyncio.timeout(DEADLINE):
        states = await asyncio.gather(*(one.read(task) for one in (bridge, replica) * 10))
    assert all(asked(state) == {"a"} for state in states)
    assert bridge.gateway.queries + replica.gateway.queries < 100


async def test_many_readers_on_two_replicas_get_exact_views(served: Bridge, replica: Bridge) -> None:
    task = await served.start("asker", {"rounds": [["a"], ["b"]], "publish": False})
    await served.parked(task, "a")
    await served.answer(task, "a")
    states = await asyncio.gather(*(one.read(task) for one in (served, replica) * 10))
    assert all(asked(state) == {"b"} for state in states)


@pytest.mark.parametrize("every", [False, True])
async def test_a_failing_workflow_task_is_answered_from_the_snapshot_in_time(served: Bridge, every: bool) -> None:
    task = await served.start("asker", {"rounds": [["a"]], "every": every})
    await served.parked(task, "a")
    await served.gateway.signal_update(task, UpdateSignal(responses={"wedge": {}}), tool="tool")
    state = await served.read(task)
    assert isinstance(state, Live)
    assert (asked(state), state.status_message) == ({"a"}, NO_WORKER)


async def test_a_paused_task_shows_its_last_state_and_says_that_it_is_paused(served: Bridge) -> None:
    task = await served.start("asker", {"rounds": [["a"]]})
    await served.parked(task, "a")
    run = await served.settled(task)
    await served.client.workflow_service.pause_workflow_execution(
        PauseWorkflowExecutionRequest(
            namespace="default", workflow_id=task, run_id=run.run_id, reason="a test", request_id="1"
        )
    )
    state = await served.read(task)
    assert isinstance(state, Live)
    assert (asked(state), state.status_message) == ({"a"}, PAUSED)
    await served.answer(task, "a")
    served.reader.acknowledged(task, ["a"])
    assert asked(await served.read(task)) == set()


@pytest.mark.parametrize("every", [False, True])
async def test_a_task_that_continued_as_new_is_one_task(served: Bridge, replica: Bridge, every: bool) -> None:
    task = await served.start("asker", {"rounds": [["a"], ["b"]], "continue_after": 1, "every": every})
    first = await served.parked(task, "a")
    await served.answer(task, "a")
    second = await replica.parked(task, "b")
    assert (second.created_at, second.last_updated_at > first.last_updated_at) == (first.created_at, True)
    assert not (await replica.described(task)).first_of_chain
    await served.settled(task)
    await served.read(task)
    close_reads = served.gateway.close_reads
    await served.read(task)
    assert served.gateway.close_reads == close_reads
    await served.answer(task, "b")
    assert (await replica.ended(task)).status == "completed"


async def test_a_cancelled_reader_does_not_disturb_those_who_share_its_query(bridge: Bridge) -> None:
    task = await bridge.start("asker", {"rounds": [["a"]], "publish": False})
    async with bridge.worker():
        await bridge.parked(task, "a")
        await bridge.settled(task)
    fresh = await make_bridge(bridge.client.service_client.config.target_host, bridge.queue)
    first, second = (asyncio.create_task(fresh.read(task)) for _ in range(2))

    async def asking() -> bool:
        return fresh.gateway.queries > 0

    await eventually(asking, what="the query")
    first.cancel()
    async with bridge.worker():
        assert asked(await second) == {"a"}
    await fresh.reader.close()


@pytest.mark.parametrize("publish", [True, False])
async def test_no_read_is_older_than_the_answers_acknowledged_before_it(
    served: Bridge, replica: Bridge, publish: bool
) -> None:
    """Readers on two replicas race with a writer. A question answered before a read began must not be in it at the
    replica that acknowledged the answer; the other one may be behind, but takes nothing back.
    """
    rounds = [[f"k{n}"] for n in range(25)]
    task = await served.start("asker", {"rounds": rounds, "publish": publish})
    answered: set[str] = set()
    reads = stale = taken_back = 0
    furthest = {served: 0, replica: 0}

    async def poll(one: Bridge) -> None:
        nonlocal reads, stale, taken_back
        while True:
            before, seen = set(answered), furthest[one]
            state = await one.read(task)
            if isinstance(state, Terminal):
                return
            reads += 1
            stale += one is served and bool(before & asked(state))
            for key in asked(state):
                taken_back += int(key[1:]) < seen
                furthest[one] = max(furthest[one], int(key[1:]))
            await asyncio.sleep(0)  # a read from memory does not wait for anything

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for one in (served, replica) * 3:
            group.create_task(poll(one))
        for (key,) in rounds:
            await served.parked(task, key)
            await served.answer(task, key)
            served.reader.acknowledged(task, [key])
            answered.add(key)
    assert reads > 100
    assert (stale, taken_back) == (0, 0)
