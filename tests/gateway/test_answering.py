"""What two principals see of one task, and what they may answer."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

import pytest
from mcp_types import INVALID_PARAMS

from bridge.answering import MayNotAnswer, actor_of, check_may_answer, shown_to
from bridge.envelope import Peer
from bridge.exchange import Caller
from bridge.identity import Identity
from bridge.rights import ALL, Right
from bridge.status import Live, live
from bridge.wire import detailed_task
from workflows.kit.contract import Principal, TaskMemo, TaskView

AT: Final = datetime(2026, 11, 30, 9, 30, tzinfo=UTC)
OWNER: Final = Principal(issuer="https://login.example", subject="anna")
BEN: Final = Principal(issuer="https://login.example", subject="ben")
ELSEWHERE: Final = Principal(issuer="https://else.example", subject="anna")
MANAGERS: Final = "release-managers"
MEMO: Final = TaskMemo(
    tool="refund",
    owner=OWNER,
    arguments_digest="0" * 64,
    created_at=AT,
    era="2026-07-28",
    client_capabilities={},
    delivery="task",
    poll_interval_ms=1_000,
)
ASK: Final = {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": {}}}
RULES: Final[dict[str, Any]] = {"other": {"who": "not_owner"}, "group": {"who": "group", "group": MANAGERS}}


def caller(principal: Principal, *groups: str) -> Caller:
    identity = Identity(principal=principal, groups=frozenset(groups))
    return Caller(identity=identity, channel="http", peer=Peer(version="2026-07-28", capabilities={}))


def asking(*keys: str, note: str | None = None, **rules: Any) -> Live:
    view = TaskView.model_validate(
        {
            "status": "input_required",
            "inputRequests": dict.fromkeys(keys, ASK),
            "answerers": rules or {key: RULES[key] for key in keys if key in RULES},
            "changedAt": AT,
            "statusMessage": "Asking",
        }
    )
    return live("t", MEMO, view, note=note)


@pytest.mark.parametrize(
    ("who", "shown"),
    [
        (caller(OWNER), ["anybody"]),
        (caller(OWNER, MANAGERS), ["anybody", "group"]),
        (caller(BEN), ["anybody", "other"]),
        (caller(BEN, "another-group"), ["anybody", "other"]),
        (caller(BEN, MANAGERS), ["anybody", "other", "group"]),
        (caller(ELSEWHERE), ["anybody", "other"]),
    ],
    ids=["owner", "owner-in-the-group", "another", "in-another-group", "in-the-group", "same-subject-elsewhere"],
)
def test_a_caller_is_shown_the_questions_that_it_may_answer(who: Caller, shown: list[str]) -> None:
    task = detailed_task(shown_to(asking("anybody", "other", "group"), who, ALL))
    assert (task["status"], list(task["inputRequests"])) == ("input_required", shown)
    assert task["statusMessage"] == "Asking"


def test_whoever_may_answer_nothing_sees_a_task_that_works_and_whom_it_waits_for() -> None:
    task = detailed_task(shown_to(asking("other", "group"), caller(OWNER), ALL))
    assert task["status"] == "working"
    assert "inputRequests" not in task
    assert task["statusMessage"] == (
        "Waiting for an answer by somebody other than the task's owner and a member of the group release-managers"
    )
    assert task["pollIntervalMs"] == 3_000, "people are slower than steps"


def test_a_task_whose_state_is_uncertain_says_that_instead() -> None:
    state = shown_to(asking("other", note="Nothing is processing this task"), caller(OWNER), ALL)
    assert isinstance(state, Live)
    assert (state.status, state.status_message) == ("working", "Nothing is processing this task")


def test_questions_that_do_not_say_who_are_shown_as_they_were() -> None:
    state = asking("anybody")
    assert shown_to(state, caller(OWNER), ALL) is state


def test_a_rule_that_is_not_known_here_is_nobodys() -> None:
    state = shown_to(asking("later", later={"who": "two_of", "groups": ["a", "b"]}), caller(BEN, MANAGERS), ALL)
    assert isinstance(state, Live)
    assert state.input_requests is None


@pytest.mark.parametrize(
    ("key", "who", "reason"),
    [
        ("other", caller(OWNER, MANAGERS), "it has to be answered by somebody other than the task's owner"),
        ("group", caller(BEN), "it has to be answered by a member of the group release-managers"),
    ],
)
def test_an_answer_that_is_not_theirs_is_refused_with_key_and_reason(key: str, who: Caller, reason: str) -> None:
    state = asking("anybody", key)
    with pytest.raises(MayNotAnswer) as refused:
        check_may_answer(state, ["anybody", "unknown", key], actor_of(who, state))
    assert refused.value.code == INVALID_PARAMS
    assert refused.value.message == f"The answer to {key!r} cannot be used: {reason}"
    assert refused.value.error.data == {"key": key, "reason": reason}


def test_the_task_is_told_of_the_groups_that_its_questions_name_and_of_no_others() -> None:
    who = caller(BEN, MANAGERS, "payroll")
    assert actor_of(who, asking("group")).groups == [MANAGERS]
    assert actor_of(who, asking("other")).groups is None
    assert actor_of(who, replace(asking("group"), answerers=None)).groups is None
    assert (actor_of(who, asking("group")).subject, actor_of(who, asking("group")).channel) == ("ben", "http")


def test_whoever_may_not_answer_for_the_task_is_asked_nothing_and_told_who_is() -> None:
    state = asking("anybody", "other")
    shown = shown_to(state, caller(BEN), {Right.READ, Right.CANCEL})
    assert isinstance(shown, Live)
    assert (shown.status, shown.input_requests) == ("working", None)
    assert shown.awaited == (
        "Waiting for an answer by the task's owner or a delegate and somebody other than the task's owner"
    )
