"""Reads of one task by one owner take turns, and nobody else notices."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

import pytest
import uvloop

from bridge import pace
from bridge.errors import INTERNAL_ERROR, INVALID_PARAMS, TOO_MANY_REQUESTS
from bridge.jsonrpc import Refusal
from bridge.pace import Pace
from tests.transport.toy import Toy, eventually, get_task, serving

FOR_EVER: Final = 10_000.0


class Reads:
    """Reads of one task, which end when they are told to. `begun` are their numbers in the order of their turns."""

    def __init__(self) -> None:
        self.pace = Pace()
        self.begun: list[int] = []
        self.ended: dict[int, asyncio.Event] = {}
        self.tasks: dict[int, asyncio.Task[None]] = {}

    async def start(self, *numbers: int) -> None:
        """Have them wait for their turns, in this order."""
        for number in numbers:
            self.ended[number] = asyncio.Event()
            self.tasks[number] = asyncio.create_task(self._read(number))
            await asyncio.sleep(0)

    async def end(self, number: int) -> None:
        self.ended[number].set()
        await self.tasks[number]

    async def begins(self, number: int) -> None:
        await eventually(lambda: number in self.begun, f"the turn of {number}")

    async def _read(self, number: int) -> None:
        with await self.pace.turn("task", "owner"):
            self.begun.append(number)
            await self.ended[number].wait()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is let in while another reads."""
    monkeypatch.setattr(pace, "PATIENCE", FOR_EVER)
    monkeypatch.setattr(pace, "LONGEST_WAIT", FOR_EVER)


async def turns(paced: Pace, task_id: str, reader: str, times: int) -> None:
    for _ in range(times):
        async with asyncio.timeout(10):
            with await paced.turn(task_id, reader):
                await asyncio.sleep(0)
            await asyncio.sleep(0)  # the next request is read from its connection


async def test_one_read_after_the_other_never_waits(monkeypatch: pytest.MonkeyPatch, patient: None) -> None:
    monkeypatch.setattr(pace, "PAUSE", FOR_EVER)
    await turns(Pace(), "task", "owner", 1000)


async def test_reads_of_other_tasks_and_of_other_owners_do_not_wait(patient: None) -> None:
    reads = Reads()
    await reads.start(0, 1)
    await turns(reads.pace, "another task", "owner", 3)
    await turns(reads.pace, "task", "another owner", 3)
    assert reads.begun == [0]
    for number in (0, 1):
        await reads.end(number)


async def test_reads_at_the_same_time_take_turns_in_the_order_of_their_arrival(patient: None) -> None:
    reads = Reads()
    await reads.start(*range(5))
    for number in range(5):
        await reads.begins(number)
        assert reads.begun == list(range(number + 1))
        await reads.end(number)


async def test_there_is_a_pause_after_each_read_that_others_wait_for(
    monkeypatch: pytest.MonkeyPatch, patient: None
) -> None:
    monkeypatch.setattr(pace, "PAUSE", 0.1)
    reads = Reads()
    await reads.start(0, 1)
    await reads.end(0)
    ended = time.monotonic()
    await reads.begins(1)
    assert time.monotonic() - ended > 0.05
    await reads.end(1)


async def test_reads_that_end_at_once_take_turns_as_well(patient: None) -> None:
    paced, served = Pace(), list[float]()

    async def flood() -> None:
        while len(served) < 50:
            with await paced.turn("task", "owner"):
                served.append(time.monotonic())
            await asyncio.sleep(0)

    await asyncio.gather(*(flood() for _ in range(5)))
    assert served[49] - served[0] > 49 * pace.PAUSE / 2


async def test_whoever_reads_on_alone_after_a_crowd_never_waits(monkeypatch: pytest.MonkeyPatch, patient: None) -> None:
    monkeypatch.setattr(pace, "PAUSE", 0.1)
    paced = Pace()
    await asyncio.gather(*(turns(paced, "task", "owner", 1) for _ in range(3)))
    await turns(paced, "task", "owner", 1)
    monkeypatch.setattr(pace, "PAUSE", FOR_EVER)
    await turns(paced, "task", "owner", 1000)


async def test_whoever_comes_within_a_pause_waits_for_its_turn(monkeypatch: pytest.MonkeyPatch, patient: None) -> None:
    monkeypatch.setattr(pace, "PAUSE", 0.1)
    reads = Reads()
    await reads.start(0, 1)
    await reads.end(0)
    await reads.start(2)
    await reads.begins(1)
    assert reads.begun == [0, 1]
    await reads.end(1)
    await reads.end(2)


def test_on_uvloop_a_pause_may_be_over_at_once(monkeypatch: pytest.MonkeyPatch, patient: None) -> None:
    async def scenario() -> None:
        paced = Pace()
        first = await paced.turn("task", "owner")
        second = asyncio.create_task(turns(paced, "task", "owner", 1))
        await asyncio.sleep(0)
        with first:
            pass
        await turns(paced, "task", "owner", 1)
        await second

    monkeypatch.setattr(pace, "PAUSE", 0.0)
    uvloop.run(scenario())


async def test_a_read_that_does_not_end_holds_nobody_up_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "LONGEST_WAIT", FOR_EVER)
    reads = Reads()
    await reads.start(0, 1, 2)
    await reads.begins(2)
    assert reads.begun == [0, 1, 2]
    for number in range(3):
        await reads.end(number)


async def test_the_turns_of_a_long_line_are_closer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "PAUSE", FOR_EVER)
    monkeypatch.setattr(pace, "PATIENCE", FOR_EVER)
    monkeypatch.setattr(pace, "LONGEST_WAIT", 0.2)
    paced = Pace()
    await asyncio.gather(*(turns(paced, "task", "owner", 1) for _ in range(100)))


async def test_a_line_that_is_full_refuses_without_a_verdict_on_the_task(
    monkeypatch: pytest.MonkeyPatch, patient: None
) -> None:
    monkeypatch.setattr(pace, "MOST_WAITING", 2)
    reads = Reads()
    await reads.start(0, 1, 2)
    with pytest.raises(Refusal) as refused:
        await turns(reads.pace, "task", "owner", 1)
    assert refused.value.code not in (INVALID_PARAMS, INTERNAL_ERROR)
    await reads.end(0)
    await reads.begins(1)
    await reads.start(3)
    for number in (1, 2, 3):
        await reads.end(number)
    assert reads.begun == [0, 1, 2, 3]


async def test_whoever_stops_waiting_leaves_the_line(patient: None) -> None:
    reads = Reads()
    await reads.start(0, 1, 2)
    reads.tasks[1].cancel()
    await asyncio.wait({reads.tasks[1]})
    await reads.end(0)
    await reads.begins(2)
    assert reads.begun == [0, 2]
    await reads.end(2)


async def test_whoever_is_cancelled_as_its_turn_comes_passes_it_on(
    monkeypatch: pytest.MonkeyPatch, patient: None
) -> None:
    monkeypatch.setattr(pace, "PAUSE", 0.0)
    reads = Reads()
    loop = asyncio.get_running_loop()
    with await reads.pace.turn("task", "owner"):
        await reads.start(1, 2)
    loop.call_at(loop.time(), reads.tasks[1].cancel)
    time.sleep(0.01)  # noqa: ASYNC251 - so that the turn and the cancel are due at once, in this order
    await reads.begins(2)
    assert reads.begun == [2] and reads.tasks[1].cancelled()
    await reads.end(2)


async def test_nothing_is_kept_of_a_line_that_nobody_stands_in(patient: None) -> None:
    reads = Reads()
    await reads.start(0, 1, 2)
    reads.tasks[1].cancel()
    await reads.end(0)  # the pause has begun, with nobody reading
    reads.tasks[2].cancel()
    await asyncio.wait({reads.tasks[1], reads.tasks[2]})
    await eventually(lambda: vars(reads.pace) == vars(Pace()), "an end of the line")


async def test_over_http_a_refusal_is_429_and_says_when_to_come_again(
    monkeypatch: pytest.MonkeyPatch, patient: None
) -> None:
    monkeypatch.setattr(pace, "MOST_WAITING", 0)
    paced, reading, go_on = Pace(), asyncio.Event(), asyncio.Event()
    answer = Toy.get_task

    async def get(toy: Toy, context: Any, params: Any) -> dict[str, Any]:
        with await paced.turn(params.task_id, "owner"):
            reading.set()
            await go_on.wait()
            return await answer(toy, context, params)

    monkeypatch.setattr(Toy, "get_task", get)
    async with serving() as served:
        first = asyncio.create_task(served.post(get_task("t")))
        await reading.wait()
        response = await served.post(get_task("t") | {"id": "second"})
        go_on.set()
        assert response.error == (429, TOO_MANY_REQUESTS, "second")
        assert response.headers["retry-after"] == "1"
        assert response.json["error"]["data"] == {"retryAfterMs": 1000}
        assert (await first).status == 200
