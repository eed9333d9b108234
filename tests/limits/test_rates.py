"""The bucket itself, by a clock of the test's."""

from __future__ import annotations

import pytest

from bridge.identity import LOCAL, Identity
from bridge.jsonrpc import Message, Notification, Request, Response
from bridge.rates import MAX_BUCKETS, Rate, RequestRates, is_urgent
from bridge.too_many import TooMany
from tests.limits.clock import Clock
from workflows.kit.contract import Principal

ALICE = Identity(principal=Principal(issuer="i", subject="alice"))
BOB = Identity(principal=Principal(issuer="i", subject="bob"))


def taken(rate: Rate, key: str, times: int) -> int:
    """How many of so many attempts were given something."""
    return sum(rate.take(key) for _ in range(times))


@pytest.mark.parametrize(("per_second", "burst"), [(1, 1), (500, 1000), (3, 7), (1_000_000, 1), (0.5, 2)])
def test_a_burst_is_given_at_once_and_no_more(per_second: float, burst: int) -> None:
    assert taken(Rate(per_second, burst, Clock()), "a", burst + 5) == burst


def test_it_fills_with_time_and_never_beyond_the_burst() -> None:
    clock = Clock()
    rate = Rate(10, 20, clock)
    assert taken(rate, "a", 30) == 20
    clock.now += 0.5
    assert taken(rate, "a", 30) == 5
    clock.now += 3600
    assert taken(rate, "a", 30) == 20


def test_a_steady_pace_is_never_refused() -> None:
    clock = Clock()
    rate = Rate(500, 1, clock)
    for _ in range(5_000):
        assert rate.take("a")
        clock.now += 0.002


def test_what_is_refused_takes_nothing() -> None:
    clock = Clock()
    rate = Rate(10, 10, clock)
    assert taken(rate, "a", 100_000) == 10
    clock.now += 0.1
    assert taken(rate, "a", 2) == 1


def test_keys_do_not_touch_each_other() -> None:
    rate = Rate(1, 3, Clock())
    assert taken(rate, "a", 5) == taken(rate, "b", 5) == 3


def test_zero_is_no_limit() -> None:
    rate = Rate(0, 1, Clock())
    assert taken(rate, "a", 100) == 100 and rate.allows("a")


def test_to_ask_takes_nothing() -> None:
    rate = Rate(1, 1, Clock())
    assert rate.allows("a") and rate.allows("a") and rate.take("a") and not rate.allows("a")


def test_memory_is_bounded() -> None:
    rate = Rate(1, 1, Clock())
    for number in range(MAX_BUCKETS + 100):
        rate.take(str(number))
    assert len(rate._full_at) == MAX_BUCKETS


def test_reads_leave_an_owners_answers_alone_and_other_owners_altogether() -> None:
    rates = RequestRates(10, 5, Clock())
    for _ in range(5):
        rates.check(ALICE, urgent=False)
    with pytest.raises(TooMany) as refused:
        rates.check(ALICE, urgent=False)
    assert (refused.value.status, refused.value.code, refused.value.data) == (429, 429, {"retryAfterMs": 1000})
    for _ in range(5):
        rates.check(ALICE, urgent=True)
        rates.check(BOB, urgent=False)
    with pytest.raises(TooMany):
        rates.check(ALICE, urgent=True)


def test_callers_who_are_not_told_apart_are_not_counted() -> None:
    rates = RequestRates(1, 1, Clock())
    for _ in range(100):
        rates.check(LOCAL, urgent=False)


@pytest.mark.parametrize(
    ("message", "urgent"),
    [
        (Request(1, "tasks/update", {}), True),
        (Request(1, "tasks/cancel", {}), True),
        (Notification("notifications/cancelled", {}), True),
        (Response("q", {}), True),
        (Request(1, "tasks/get", {}), False),
        (Request(1, "tools/call", {}), False),
        (Notification("notifications/initialized", {}), False),
    ],
)
def test_answers_and_cancels_are_urgent(message: Message, urgent: bool) -> None:
    assert is_urgent(message) is urgent
