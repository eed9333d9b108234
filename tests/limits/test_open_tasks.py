"""When an owner's tasks are counted, when it is refused, and when nobody can count. The clock is the test's."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Final

import pytest

from bridge.errors import BridgeError, EngineUnavailable
from bridge.open_tasks import AGAIN_SECONDS, COUNTS_AT_A_TIME, FAR_SECONDS, NEAR_SECONDS, OpenTasks, TooManyOpenTasks
from tests.limits.clock import Clock
from workflows.kit.contract import Principal

ALICE, BOB = (Principal(issuer="i", subject=subject) for subject in ("alice", "bob"))
LIMIT: Final = 10


class Lists:
    """What stands in for Temporal's visibility: it shows what it is told to, and keeps count of who asked."""

    def __init__(self) -> None:
        self.shown: dict[str, int | None] = {}
        self.counts = Counter[str]()
        self.fails: BridgeError | None = None
        self.answers = asyncio.Event()
        self.answers.set()
        self.at_a_time = 0

    async def count(self, owner: Principal) -> int | None:
        self.counts[owner.subject] += 1
        self.at_a_time += 1
        shown = self.shown.get(owner.subject, 0)
        try:
            await self.answers.wait()
        finally:
            self.at_a_time -= 1
        if self.fails:
            raise self.fails
        return shown


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def lists() -> Lists:
    return Lists()


@pytest.fixture
def open_tasks(lists: Lists, clock: Clock) -> OpenTasks:
    return OpenTasks(lists.count, LIMIT, clock)


async def admitted(open_tasks: OpenTasks, times: int, owner: Principal = ALICE) -> int:
    """How many of so many were."""
    number = 0
    for _ in range(times):
        try:
            await open_tasks.admit(owner)
            number += 1
        except TooManyOpenTasks:
            pass
    return number


async def counted(open_tasks: OpenTasks) -> None:
    """Return once no count is under way."""
    await asyncio.gather(*open_tasks._counting)


async def test_what_is_started_here_counts_before_temporal_shows_it(open_tasks: OpenTasks, lists: Lists) -> None:
    assert await admitted(open_tasks, 3 * LIMIT) == LIMIT
    assert lists.counts["alice"] == 1


async def test_what_was_open_before_counts(open_tasks: OpenTasks, lists: Lists) -> None:
    lists.shown["alice"] = LIMIT - 1
    assert await admitted(open_tasks, 5) == 1
    assert await admitted(open_tasks, 5, BOB) == 5


async def test_calls_at_the_same_time_do_not_slip_through_together(open_tasks: OpenTasks, lists: Lists) -> None:
    lists.answers.clear()
    calls = [asyncio.create_task(open_tasks.admit(ALICE)) for _ in range(50)]
    await asyncio.sleep(0)
    lists.answers.set()
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert outcomes.count(None) == LIMIT
    assert lists.counts["alice"] == 1


async def test_the_refusal_says_how_many_are_open_and_what_to_do(open_tasks: OpenTasks, lists: Lists) -> None:
    lists.shown["alice"] = 12
    with pytest.raises(TooManyOpenTasks) as refused:
        await open_tasks.admit(ALICE)
    assert str(refused.value) == (
        "12 of your tasks are open, and at most 10 may be at a time, so nothing was started. Finish or cancel some, "
        "then call again."
    )


async def test_an_owner_at_the_limit_gets_in_again_once_some_have_ended(
    open_tasks: OpenTasks, lists: Lists, clock: Clock
) -> None:
    lists.shown["alice"] = LIMIT
    assert await admitted(open_tasks, 100) == 0
    lists.shown["alice"] = LIMIT - 2
    assert await admitted(open_tasks, 100) == 0
    assert lists.counts["alice"] == 1, "a refusal costs no count of its own"
    clock.now += AGAIN_SECONDS
    assert await admitted(open_tasks, 100) == 2
    assert lists.counts["alice"] == 2


async def test_an_owner_far_from_the_limit_is_counted_once_a_minute_and_does_not_wait_for_it(
    open_tasks: OpenTasks, lists: Lists, clock: Clock
) -> None:
    await open_tasks.admit(ALICE)
    clock.now += FAR_SECONDS - 1
    await open_tasks.admit(ALICE)
    assert lists.counts["alice"] == 1
    clock.now += 1
    lists.answers.clear()
    async with asyncio.timeout(5):
        await open_tasks.admit(ALICE)
    lists.answers.set()
    await counted(open_tasks)
    assert lists.counts["alice"] == 2


async def test_an_owner_near_the_limit_is_counted_more_often(open_tasks: OpenTasks, lists: Lists, clock: Clock) -> None:
    lists.shown["alice"] = LIMIT // 2
    await open_tasks.admit(ALICE)
    clock.now += NEAR_SECONDS
    lists.shown["alice"] = LIMIT  # another replica started them
    assert await admitted(open_tasks, 1) == 1
    await counted(open_tasks)
    assert await admitted(open_tasks, 1) == 0


async def test_what_is_started_while_a_count_is_under_way_is_not_forgotten(
    open_tasks: OpenTasks, lists: Lists, clock: Clock
) -> None:
    lists.shown["alice"] = LIMIT - 4
    await open_tasks.admit(ALICE)
    clock.now += NEAR_SECONDS
    lists.answers.clear()
    lists.shown["alice"] = LIMIT - 3
    assert await admitted(open_tasks, 1) == 1  # begins a count
    await asyncio.sleep(0)
    assert await admitted(open_tasks, 1) == 1  # which this one is too late for
    lists.answers.set()
    await counted(open_tasks)
    assert await admitted(open_tasks, 10) == 2


async def test_what_was_not_started_after_all_does_not_count(open_tasks: OpenTasks) -> None:
    for _ in range(5 * LIMIT):
        await open_tasks.admit(ALICE)
        open_tasks.withdraw(ALICE)
    assert await admitted(open_tasks, 2 * LIMIT) == LIMIT


async def test_nobody_is_refused_while_nobody_can_count_and_the_log_says_so_once(
    open_tasks: OpenTasks, lists: Lists, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "bridge.open_tasks")
    lists.fails = EngineUnavailable()
    assert await admitted(open_tasks, 3 * LIMIT) == 3 * LIMIT
    clock.now += NEAR_SECONDS
    assert await admitted(open_tasks, 3 * LIMIT) == 3 * LIMIT
    await counted(open_tasks)
    assert lists.counts["alice"] == 2
    assert [record.message for record in caplog.records] == ["open_tasks.not_counted"]
    lists.fails, lists.shown["alice"] = None, LIMIT
    clock.now += NEAR_SECONDS
    await open_tasks.admit(ALICE)
    await counted(open_tasks)
    assert await admitted(open_tasks, 1) == 0
    assert [record.message for record in caplog.records] == ["open_tasks.not_counted", "open_tasks.counted_again"]


async def test_without_search_attributes_there_is_no_limit(
    open_tasks: OpenTasks, lists: Lists, caplog: pytest.LogCaptureFixture
) -> None:
    lists.shown = {"alice": None, "bob": None}
    assert await admitted(open_tasks, 3 * LIMIT) == 3 * LIMIT
    await open_tasks.admit(BOB)
    (record,) = caplog.records
    assert vars(record)["why"] == "the search attributes are not registered"


async def test_zero_is_no_limit_and_costs_no_count(lists: Lists) -> None:
    assert await admitted(OpenTasks(lists.count, 0), 100) == 100
    assert not lists.counts


async def test_a_caller_that_leaves_does_not_end_the_count_of_others(open_tasks: OpenTasks, lists: Lists) -> None:
    lists.answers.clear()
    lists.shown["alice"] = LIMIT - 1
    first, second = (asyncio.create_task(open_tasks.admit(ALICE)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    lists.answers.set()
    await second
    assert first.cancelled() and lists.counts["alice"] == 1


async def test_many_owners_are_counted_a_few_at_a_time(open_tasks: OpenTasks, lists: Lists) -> None:
    lists.answers.clear()
    calls = [asyncio.create_task(open_tasks.admit(Principal(issuer="i", subject=f"{n}"))) for n in range(50)]
    for _ in range(100):
        await asyncio.sleep(0)
    assert lists.at_a_time == COUNTS_AT_A_TIME
    lists.answers.set()
    await asyncio.gather(*calls)
    assert lists.counts.total() == 50


async def test_a_stop_ends_a_count_that_hangs(open_tasks: OpenTasks, lists: Lists) -> None:
    lists.answers.clear()
    call = asyncio.create_task(open_tasks.admit(ALICE))
    await asyncio.sleep(0)
    async with asyncio.timeout(5):
        await open_tasks.close()
    await call
    assert lists.at_a_time == 0


async def test_no_call_waits_long_for_a_count_that_hangs(
    open_tasks: OpenTasks, lists: Lists, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bridge.open_tasks.WAIT_SECONDS", 0.01)
    lists.answers.clear()
    assert await admitted(open_tasks, 3 * LIMIT) == 3 * LIMIT
    lists.shown["bob"] = LIMIT
    lists.answers.set()
    await counted(open_tasks)
    assert await admitted(open_tasks, 1, BOB) == 0
    lists.answers.clear()
    clock.now += AGAIN_SECONDS
    assert await admitted(open_tasks, 1, BOB) == 0, "what was known last"
    lists.answers.set()
    await counted(open_tasks)
