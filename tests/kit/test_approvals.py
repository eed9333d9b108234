"""An approval covers one thing, exactly, and one use."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError

from tests.kit.conftest import Run, Tasks
from tests.kit.test_questions import accept, parked
from tests.kit.tools import OTHER, REFUND
from workflows.kit import Approval, Unapproved
from workflows.kit.approvals import digest_of
from workflows.kit.contract import TOOL_ERROR, Actor

WHEN = datetime(2026, 11, 30, 9, 30, tzinfo=UTC)
BOSS = Actor(issuer="local", subject="boss", channel="page")

engine = pytest.mark.asyncio(loop_scope="session")


def approval(subject: object) -> Approval:
    return Approval(digest=digest_of(subject), task="task-1", key="refund", by=BOSS, at=WHEN)


def test_the_digest_is_that_of_the_canonical_json() -> None:
    canonical = '{"a":[1,true,null],"b":{"c":"ü"}}'
    assert digest_of({"b": {"c": "ü"}, "a": (1, True, None)}) == hashlib.sha256(canonical.encode()).hexdigest()


@pytest.mark.parametrize("same", [{"cents": 1250, "order": "A-17"}, REFUND], ids=["another-order", "a-model"])
def test_equal_json_has_equal_digests(same: object) -> None:
    assert digest_of(same) == digest_of({"order": "A-17", "cents": 1250})


@pytest.mark.parametrize("other", [{"order": "A-17"}, {"order": "A-17", "cents": "1250"}, [], OTHER], ids=str)
def test_an_approval_of_something_else_does_not_cover_it(other: object) -> None:
    with pytest.raises(Unapproved):
        approval(REFUND).check(other)


def test_an_approval_covers_what_was_approved_and_cannot_be_changed() -> None:
    given = approval(REFUND)
    given.check(REFUND)
    with pytest.raises(ValidationError):
        given.digest = digest_of(OTHER)  # type: ignore[misc]


def test_unapproved_is_a_tool_error_that_is_never_retried() -> None:
    error = Unapproved("The approval was used before.")
    assert (error.type, error.non_retryable) == (TOOL_ERROR, True)


async def decided(run: Run, **content: Any) -> None:
    await run.update({"refund": accept(**content)}, actor=BOSS, at=WHEN)


@engine
async def test_the_question_names_the_digest_of_what_is_approved(tasks: Tasks) -> None:
    run = await tasks.start("kit_approve")
    params = (await parked(run))["refund"]["params"]
    assert params["message"].startswith("Pay back?")
    assert digest_of(REFUND) in params["message"]
    assert params["requestedSchema"]["required"] == ["approve"]
    await run.handle.cancel()


@engine
async def test_an_approval_says_what_who_when_and_by_which_channel(tasks: Tasks) -> None:
    run = await tasks.start("kit_approve")
    await parked(run)
    await decided(run, approve=True, note="as agreed")
    result = (await run.result())["structuredContent"]
    given = Approval.model_validate(result["approval"])
    assert result["paid"] == "paid 1250"
    assert (given.digest, given.task, given.key) == (digest_of(REFUND), run.handle.id, "refund")
    assert (given.by, given.at, given.note) == (BOSS, WHEN, "as agreed")


@engine
async def test_who_does_not_approve_may_say_why(tasks: Tasks) -> None:
    run = await tasks.start("kit_approve")
    await parked(run)
    await decided(run, approve=False, note="wrong order")
    assert (await run.result())["structuredContent"] == {"declined": "wrong order", "expired": False}


@engine
async def test_an_approval_that_nobody_gives_in_time_is_declined(tasks: Tasks) -> None:
    result = await (await tasks.start("kit_approve", "deadline")).result()
    assert result["structuredContent"] == {"declined": "", "expired": True}


@engine
@pytest.mark.parametrize(
    ("mode", "says"),
    [
        ("changed", "not what was approved"),
        ("spent", "used before"),
        ("spent_after_rollover", "used before"),
    ],
)
async def test_an_approval_is_refused_for_something_else_and_for_a_second_use(
    tasks: Tasks, mode: str, says: str
) -> None:
    run = await tasks.start("kit_approve", mode)
    first = (await run.handle.describe()).run_id
    await parked(run)
    await decided(run, approve=True)
    failure = await run.failure()
    assert failure.type == TOOL_ERROR
    assert says in failure.message
    if mode == "spent_after_rollover":
        assert (await run.handle.describe()).run_id != first


@engine
async def test_an_activity_checks_what_it_is_about_to_do(tasks: Tasks) -> None:
    run = await tasks.start("kit_approve", "changed_in_the_activity")
    await parked(run)
    await decided(run, approve=True)
    with pytest.raises(Exception, match="Workflow execution failed") as failed:
        await run.result()
    assert "not what was approved" in str(failed.value.__cause__.__cause__)  # type: ignore[union-attr]
