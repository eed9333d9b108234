"""What a history tells of recorded tasks, and what it never tells."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHistory
from temporalio.contrib.pydantic import pydantic_data_converter

from bridge.events import AnswersCame, CancelRequested, Event, RunClosed, StepScheduled, ViewPublished, told
from bridge.history import MAX_KEYS_TOLD, History
from bridge.payloads import Payloads, nothing_parsed
from bridge.status import Terminal
from tests.support import ROOT
from workflows.kit.contract import Actor, Principal, TaskMemo, TaskView, UpdateSignal

KIT: Final = ROOT / "tests" / "replay" / "histories"
SHIPPED: Final = ROOT / "tests" / "workflows_shipped" / "histories"

START: Final = datetime(2026, 7, 28, 10, tzinfo=UTC)
OWNER: Final = Principal(issuer="local", subject="anna")
MEMO: Final = TaskMemo(
    tool="refund",
    owner=OWNER,
    arguments_digest="0" * 64,
    created_at=START,
    era="2026-07-28",
    client_capabilities={},
    delivery="task",
)
SCHEMA: Final = {"type": "object", "properties": {"approve": {"type": "boolean"}}, "required": ["approve"]}
FORM: Final = {
    "method": "elicitation/create",
    "params": {"mode": "form", "message": "Pay?", "requestedSchema": SCHEMA},
}


def raw_events(path: Path) -> list[HistoryEvent]:
    return list(WorkflowHistory.from_json("task", path.read_text("utf-8")).events)


async def recorded(path: Path) -> list[Event]:
    payloads = Payloads(pydantic_data_converter, "default", "task", nothing_parsed())
    events = raw_events(path)
    return [event for event in [await told(raw, payloads, "task") for raw in events] if event is not None]


def entries(*events: Event) -> list[dict[str, Any]]:
    """What `events` tell, without the creation."""
    history = History(MEMO)
    for event in events:
        history.take(event)
    return history.entries[1:]


def words(told_entries: list[dict[str, Any]], *members: str) -> list[tuple[Any, ...]]:
    """Each entry's event and the members of it that are named and there."""
    return [(entry["event"], *(entry[name] for name in members if name in entry)) for entry in told_entries]


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def asks(number: int, *keys: str, request: Mapping[str, Any] = FORM) -> ViewPublished:
    view = TaskView(
        status="input_required" if keys else "working",
        input_requests={key: dict(request) for key in keys} or None,
        changed_at=at(number),
    )
    return ViewPublished(number, at(number), view)


def answers(number: int, responses: Mapping[str, Any], *, offered: bool = False) -> AnswersCame:
    actor = Actor(issuer="local", subject="ben", channel="http")
    return AnswersCame(number, at(number), UpdateSignal(responses=dict(responses), actor=actor, offered=offered))


def accept(**content: Any) -> dict[str, Any]:
    return {"action": "accept", "content": content}


async def test_a_deployment_that_was_rolled_back_reads_as_what_happened() -> None:
    steps = words(
        entries(*await recorded(SHIPPED / "deploy_release.rolled_back.json")), "step", "key", "action", "status"
    )
    assert steps == [
        ("step_scheduled", "plan_deployment"),
        ("step_finished", "plan_deployment"),
        ("asked", "approval"),
        ("status_changed", "input_required"),
        ("answered", "approval", "accept"),
        ("step_scheduled", "switch_release"),
        ("status_changed", "working"),
        ("step_finished", "switch_release"),
        ("step_scheduled", "check_health"),
        ("step_finished", "check_health"),
        ("step_scheduled", "roll_back_release"),
        ("step_finished", "roll_back_release"),
    ]


async def test_an_answer_of_somebody_who_may_not_give_it_is_told_as_ignored() -> None:
    managers = {"who": "group", "group": "managers"}
    view = asks(1, "approval").view
    assert view is not None
    guarded = TaskView.model_validate({**view.to_json(), "answerers": {"approval": managers}})
    wrong, right = answers(2, {"approval": accept(approve=True)}), answers(3, {"approval": accept(approve=False)})
    assert right.update.actor is not None
    manager = right.update.actor.model_copy(update={"groups": ["managers"]})
    right = replace(right, update=right.update.model_copy(update={"actor": manager}))
    told_entries = entries(ViewPublished(1, at(1), guarded), wrong, right)
    assert words(told_entries, "key", "keys")[-2:] == [("answers_ignored", ["approval"]), ("answered", "approval")]
    assert told_entries[-2]["at"] < told_entries[-1]["at"]


async def test_answers_count_once_and_whatever_else_came_is_told_as_ignored() -> None:
    told_entries = words(entries(*await recorded(KIT / "answered.json")), "key", "keys")
    asked = [entry[1] for entry in told_entries if entry[0] == "asked"]
    answered = [entry[1] for entry in told_entries if entry[0] == "answered"]
    assert sorted(asked) == sorted(answered)
    assert ("answers_ignored", ["unknown"]) in told_entries
    assert ("answers_ignored", ["first"]) in told_entries


async def test_a_task_that_continued_as_new_is_one_history() -> None:
    history = History(MEMO)
    for number in range(len(list(KIT.glob("continued.*.json")))):
        if number:
            history.next_run(by_reset=False)
        for event in await recorded(KIT / f"continued.{number}.json"):
            history.take(event)
    told_entries = words(history.entries, "key")
    assert sum(entry[0] == "created" for entry in told_entries) == 1
    asked = [entry[1] for entry in told_entries if entry[0] == "asked"]
    assert len(asked) == len(set(asked))
    assert ("answered", "stop") in told_entries
    assert {entry[1] for entry in told_entries if entry[0] == "answered"} <= set(asked)


async def test_a_cancel_is_told_with_the_reference_of_whoever_asked_for_it() -> None:
    told_entries = entries(*await recorded(KIT / "cancelled_parked.json"))
    assert words(told_entries, "by")[-1] == ("cancel_requested", "somebody")


async def test_a_failed_step_is_told_with_its_attempts_and_without_its_message() -> None:
    paths = sorted(SHIPPED.glob("*.json"))
    failed = [entry for path in paths for entry in entries(*await recorded(path)) if entry["event"] == "step_failed"]
    assert failed
    for entry in failed:
        assert entry.keys() == {"at", "event", "step", "stepId", "attempts", "startedAt"}
        assert entry["attempts"] >= 1


@pytest.mark.parametrize(
    "path", [*sorted(KIT.glob("*.json")), *sorted(SHIPPED.glob("*.json"))], ids=lambda path: path.stem
)
async def test_the_entries_of_every_recorded_run_are_in_order_and_of_known_shape(path: Path) -> None:
    told_entries = entries(*await recorded(path))
    times = [entry["at"] for entry in told_entries]
    assert times == sorted(times)
    known = {"at", "event", "key", "keys", "count", "method", "message", "action", "by", "channel"}
    known |= {"status", "step", "stepId", "attempts", "startedAt"}
    assert {member for entry in told_entries for member in entry} <= known


def test_an_entry_says_who_answered_and_how_but_not_what() -> None:
    (entry,) = entries(asks(1, "approval"), answers(2, {"approval": accept(approve=True)}))[2:]
    assert entry == {
        "at": "2026-07-28T10:00:02.000000Z",
        "event": "answered",
        "key": "approval",
        "action": "accept",
        "by": {"issuer": "local", "subject": "ben"},
        "channel": "http",
    }


def test_the_creation_says_who_asked_for_which_tool_and_not_with_which_arguments() -> None:
    assert History(MEMO).entries == [
        {
            "at": "2026-07-28T10:00:00.000000Z",
            "event": "created",
            "tool": "refund",
            "by": {"issuer": "local", "subject": "anna"},
            "argumentsDigest": "0" * 64,
        }
    ]


def test_an_answer_that_does_not_fit_is_ignored_and_the_next_one_that_fits_counts() -> None:
    told_entries = entries(
        asks(1, "approval"),
        answers(2, {"approval": accept(approve="perhaps")}),
        answers(3, {"approval": accept(approve=True)}),
        answers(4, {"approval": accept(approve=False)}),
    )
    assert words(told_entries)[2:] == [("answers_ignored",), ("answered",), ("answers_ignored",)]


def test_a_question_that_nobody_answered_is_withdrawn() -> None:
    told_entries = entries(asks(1, "a", "b"), answers(2, {"a": accept(approve=True)}), asks(3))
    assert words(told_entries, "key", "status")[3:] == [
        ("answered", "a"),
        ("withdrawn", "b"),
        ("status_changed", "working"),
    ]


def test_an_answer_that_came_with_the_call_is_told_as_offered() -> None:
    told_entries = entries(asks(1), answers(2, {"name": accept(approve=True)}, offered=True))
    assert words(told_entries, "keys") == [("answers_offered", ["name"])]


def test_a_model_is_asked_without_telling_what() -> None:
    request = {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 5, "message": "secret"}}
    told_entries = entries(asks(1, "m", request=request))
    assert told_entries[0] == {
        "at": "2026-07-28T10:00:01.000000Z",
        "event": "asked",
        "key": "m",
        "method": "sampling/createMessage",
    }


def test_a_link_to_visit_is_not_told() -> None:
    request = {"method": "elicitation/create", "params": {"mode": "url", "message": "Sign in", "url": "https://x/?t=1"}}
    assert "https" not in json.dumps(entries(asks(1, "sign-in", request=request)))


def test_a_view_too_large_to_be_kept_still_says_that_something_is_asked() -> None:
    told_entries = entries(
        ViewPublished(1, at(1), None), answers(2, {"a": accept()}), ViewPublished(3, at(3), None), asks(4)
    )
    assert words(told_entries, "key", "status") == [
        ("asked",),
        ("status_changed", "input_required"),
        ("answered", "a"),
        ("status_changed", "working"),
    ]


def test_a_workflow_that_publishes_nothing_has_every_answer_told() -> None:
    told_entries = entries(answers(1, {"a": accept(), "b": {"action": "decline"}, "c": "odd"}))
    assert words(told_entries, "key", "action") == [
        ("answered", "a", "accept"),
        ("answered", "b", "decline"),
        ("answered", "c"),
    ]


@pytest.mark.parametrize("request_", [{}, {"method": "elicitation/create"}, {"method": "x", "params": 3}], ids=str)
def test_a_question_that_mcp_does_not_know_is_told_and_takes_any_answer(request_: dict[str, Any]) -> None:
    told_entries = entries(asks(1, "a", request=request_), answers(2, {"a": {"action": ["odd"]}}))
    assert words(told_entries, "key")[-1] == ("answered", "a")
    assert "action" not in told_entries[-1]


def test_keys_that_nobody_asked_for_are_counted_and_only_some_are_told() -> None:
    many = {f"{number}" + "x" * 500: accept() for number in range(1000)}
    (entry,) = entries(asks(1), answers(2, many))
    assert entry["count"] == 1000
    assert len(entry["keys"]) == MAX_KEYS_TOLD
    assert max(map(len, entry["keys"])) <= 128


def test_a_run_that_was_set_back_repeats_nothing_and_asks_again_what_was_open() -> None:
    history = History(MEMO)
    first = [asks(1, "a"), answers(2, {"a": accept(approve=True)}), StepScheduled(3, at(3), "pay")]
    for event in [*first, RunClosed(4, at(4), "", by_reset=True)]:
        history.take(event)
    history.next_run(by_reset=True)
    for event in [first[0], CancelRequested(2, at(5), "ops"), answers(6, {"a": accept(approve=False)})]:
        history.take(event)
    assert words(history.entries[1:], "key") == [
        ("asked", "a"),
        ("status_changed",),
        ("answered", "a"),
        ("step_scheduled",),
        ("set_back",),
        ("cancel_requested",),
        ("answered", "a"),
    ]


def test_a_later_run_that_was_set_back_starts_with_what_was_open_when_it_began() -> None:
    history = History(MEMO)
    history.take(asks(1, "a"))
    history.next_run(by_reset=False)
    history.take(answers(2, {"a": accept(approve=True)}))
    history.next_run(by_reset=True)
    history.take(answers(3, {"a": accept(approve=False)}))
    assert words(history.entries[3:], "key") == [("answered", "a"), ("answered", "a")]


@pytest.mark.parametrize(
    ("result", "last"),
    [
        ({"content": []}, {"status": "completed"}),
        ({"content": [], "isError": True}, {"status": "completed", "isError": True}),
    ],
    ids=["well", "with a tool error"],
)
def test_the_end_is_the_status_that_the_task_is_read_with(result: dict[str, Any], last: dict[str, Any]) -> None:
    history = History(MEMO)
    history.end(
        Terminal(
            task_id="task",
            memo=MEMO,
            created_at=START,
            last_updated_at=at(9),
            ttl_ms=1,
            closed_at=at(9),
            status="completed",
            result=result,
        )
    )
    assert history.entries[-1] == {"at": "2026-07-28T10:00:09.000000Z", "event": "ended", **last}
