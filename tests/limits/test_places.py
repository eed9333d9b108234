"""Places are taken and given back, by owner and in all."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import pytest

from bridge.places import StreamPlaces, WaitingCalls
from bridge.too_many import TooMany
from workflows.kit.contract import Principal

ALICE, BOB = (Principal(issuer="i", subject=subject) for subject in ("alice", "bob"))


def test_an_owner_at_its_limit_is_refused_and_another_is_not() -> None:
    calls = WaitingCalls(2)
    with calls.waiting(ALICE), calls.waiting(ALICE):
        assert not calls.has_room(ALICE)
        with pytest.raises(TooMany, match="At most 2 calls"), calls.waiting(ALICE):
            pass
        with calls.waiting(BOB):
            pass
    with calls.waiting(ALICE):
        pass


@pytest.mark.parametrize("end", [ValueError, asyncio.CancelledError, KeyboardInterrupt])
def test_a_place_is_free_again_however_it_ended(end: type[BaseException]) -> None:
    calls = WaitingCalls(1)
    for _ in range(3):
        with pytest.raises(end), calls.waiting(ALICE):
            raise end


def test_a_stream_counts_for_its_owner_for_its_tasks_and_for_all() -> None:
    places = StreamPlaces(streams=3, per_owner=2, tasks_per_owner=10)
    with ExitStack() as open_streams:
        open_streams.enter_context(places.opened(ALICE, 6))
        with pytest.raises(TooMany, match="At most 10 tasks"), places.opened(ALICE, 5):
            pass
        open_streams.enter_context(places.opened(ALICE, 4))
        with pytest.raises(TooMany, match="At most 2 subscriptions"), places.opened(ALICE, 0):
            pass
        open_streams.enter_context(places.opened(BOB, 10))
        with pytest.raises(TooMany, match="no room for another"), places.opened(BOB, 0):
            pass
    with places.opened(ALICE, 10), places.opened(BOB, 10):
        pass


def test_zero_is_no_limit() -> None:
    places, calls = StreamPlaces(streams=0, per_owner=0, tasks_per_owner=0), WaitingCalls(0)
    with ExitStack() as many:
        for _ in range(100):
            many.enter_context(places.opened(ALICE, 1000))
            many.enter_context(calls.waiting(ALICE))
