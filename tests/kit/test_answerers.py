"""Who may answer: the rule, and the workflow that applies it to every signal."""

from __future__ import annotations

import logging
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from temporalio.service import RPCError

from tests.kit.conftest import Run, Tasks
from tests.kit.test_questions import accept, parked
from tests.support import eventually
from workflows.kit import NOT_OWNER, group
from workflows.kit.answerers import groups_named, in_words, may_answer
from workflows.kit.contract import VIEW_MEMO, Actor, Answerer, Principal, UpdateSignal

OWNER = Principal(issuer="local", subject="tester")
MANAGERS = group("managers")
WHEN = datetime(2026, 11, 30, 9, 30, tzinfo=UTC)

engine = pytest.mark.asyncio(loop_scope="session")


def actor(subject: str = "other", *, issuer: str = "local", groups: list[str] | None = None) -> Actor:
    return Actor(issuer=issuer, subject=subject, client="desk", channel="http", groups=groups)


@pytest.mark.parametrize(
    ("answerer", "who", "may"),
    [
        (None, None, True),
        (None, actor("tester"), True),
        (NOT_OWNER, None, False),
        (NOT_OWNER, actor("tester"), False),
        (NOT_OWNER, Actor(issuer="local", subject="tester", client="another", channel="stdio"), False),
        (NOT_OWNER, actor("other"), True),
        (NOT_OWNER, actor("tester", issuer="https://elsewhere"), True),
        (MANAGERS, None, False),
        (MANAGERS, actor("other"), False),
        (MANAGERS, actor("other", groups=["managers-of-something"]), False),
        (MANAGERS, actor("other", groups=["x", "managers"]), True),
        (MANAGERS, actor("tester", groups=["managers"]), True),
        (Answerer(who="group"), actor("other", groups=["managers"]), False),
        (Answerer(who="of_a_later_version"), actor("other", groups=["managers"]), False),
    ],
)
def test_the_rule(answerer: Answerer | None, who: Actor | None, may: bool) -> None:
    assert may_answer(answerer, OWNER, who) is may


def test_nobody_is_known_not_to_be_an_unknown_owner() -> None:
    assert not may_answer(NOT_OWNER, None, actor())


@pytest.mark.parametrize("name", ["", "x" * 257, "a\nb"])
def test_what_cannot_name_a_group_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="group"):
        group(name)


def test_only_groups_that_questions_name_are_told() -> None:
    assert groups_named([NOT_OWNER, MANAGERS, group("auditors")]) == {"managers", "auditors"}


def test_every_rule_has_words() -> None:
    assert in_words(NOT_OWNER) == "somebody other than the task's owner"
    assert in_words(MANAGERS) == "a member of the group managers"
    assert "does not know" in in_words(Answerer(who="of_a_later_version"))


async def answered(run: Run, confirm: bool, who: Actor | None) -> None:
    await run.update({"sure": accept(confirm=confirm)}, actor=who, at=WHEN)


async def outcome(run: Run) -> dict[str, Any]:
    content: dict[str, Any] = (await run.result())["structuredContent"]
    return content


@engine
async def test_the_view_says_who_may_answer_and_so_does_its_snapshot(tasks: Tasks) -> None:
    run = await tasks.start("kit_asks_others", "group")
    await parked(run)
    view = await run.view()
    assert view["answerers"] == {"sure": {"who": "group", "group": "managers"}}
    assert (await run.memo())[VIEW_MEMO] == view
    await run.handle.cancel()


@engine
async def test_a_question_that_does_not_say_who_leaves_the_view_as_it_was(tasks: Tasks) -> None:
    run = await tasks.start("kit_asks_others", "anybody")
    await parked(run)
    assert "answerers" not in await run.view()
    await answered(run, True, None)
    assert (await outcome(run))["answer"]["key"] == "sure"


@engine
@pytest.mark.parametrize(
    ("mode", "wrong", "right"),
    [
        ("not_owner", actor("tester", groups=["managers"]), actor("other")),
        ("not_owner", None, actor("other")),
        ("group", actor("other"), actor("third", groups=["managers"])),
        ("group", None, actor("third", groups=["managers"])),
    ],
    ids=["owner", "nobody", "no-member", "nobody-in-a-group"],
)
async def test_an_answer_of_somebody_who_may_not_give_it_uses_up_nothing(
    tasks: Tasks, mode: str, wrong: Actor | None, right: Actor
) -> None:
    run = await tasks.start("kit_asks_others", mode)
    await parked(run)
    await answered(run, False, wrong)
    await run.update({"sure": {"action": "decline"}}, actor=wrong)
    assert list(await parked(run)) == ["sure"]
    await answered(run, True, right)
    with suppress(RPCError):  # it may have ended by now
        await answered(run, False, right)
    assert (await outcome(run))["confirm"] is True


@engine
async def test_a_refused_answer_is_logged_without_what_it_says(tasks: Tasks, caplog: pytest.LogCaptureFixture) -> None:
    run = await tasks.start("kit_asks_others", "not_owner")
    await parked(run)
    with caplog.at_level(logging.WARNING):
        await run.update({"sure": {"action": "accept", "content": {"secret": "hunter2"}}}, actor=actor("tester"))
        await eventually(lambda: _logged(caplog), what="the log")
    assert "hunter2" not in caplog.text
    await run.handle.cancel()


async def _logged(caplog: pytest.LogCaptureFixture) -> bool:
    return any(record.message.startswith("answer.refused") for record in caplog.records)


@engine
async def test_the_author_learns_who_answered_when_and_by_which_channel(tasks: Tasks) -> None:
    run = await tasks.start("kit_asks_others", "group")
    await parked(run)
    await answered(run, True, actor("boss", groups=["managers"]))
    told = await outcome(run)
    assert told["answer"]["by"] == {
        "issuer": "local",
        "subject": "boss",
        "client": "desk",
        "channel": "http",
        "groups": ["managers"],
    }
    assert datetime.fromisoformat(told["answer"]["at"]) == WHEN
    assert told["unknown"] is None


@engine
@pytest.mark.parametrize(("who", "taken"), [(actor("tester"), False), (actor("other"), True)], ids=["owner", "other"])
async def test_an_offered_answer_obeys_the_rule(tasks: Tasks, who: Actor, taken: bool) -> None:
    offer = UpdateSignal(responses={"sure": accept(confirm=True)}, offered=True, actor=who)
    run = await tasks.start("kit_asks_others", "not_owner", signal=offer)
    if not taken:
        await parked(run)
        await answered(run, False, actor("other"))
    assert (await outcome(run))["confirm"] is taken


@engine
async def test_choices_and_raw_questions_obey_it_too(tasks: Tasks) -> None:
    run = await tasks.start("kit_asks_others_each_way")
    await parked(run, 2)
    both = {"choice": accept(choice="a"), "raw": accept(confirm=True)}
    await run.update(both, actor=actor("tester"))
    assert len(await parked(run, 2)) == 2
    await run.update(both, actor=actor("other"))
    assert list(await parked(run)) == ["raw"]
    await run.update(both, actor=actor("tester", groups=["managers"]))
    assert (await run.result())["structuredContent"] == ["a", accept(confirm=True)]


@engine
async def test_who_may_answer_survives_rollovers(tasks: Tasks) -> None:
    run = await tasks.start("kit_asks_others_for_long")
    await parked(run)
    first = (await run.handle.describe()).run_id

    async def rolled_over() -> bool:
        return (await run.handle.describe()).run_id != first

    await eventually(rolled_over, what="a rollover")
    await answered(run, True, actor("tester"))
    await parked(run)
    assert (await run.view())["answerers"] == {"sure": {"who": "not_owner"}}
    await answered(run, True, actor("other"))
    assert (await outcome(run))["answer"]["by"]["subject"] == "other"


@engine
async def test_a_client_that_cannot_be_asked_may_have_somebody_else_asked(tasks: Tasks) -> None:
    run = await tasks.start("kit_asks_others", "not_owner", client_capabilities={})
    await parked(run)
    await answered(run, True, actor("other"))
    assert (await outcome(run))["confirm"] is True
