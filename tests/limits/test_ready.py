"""Readiness is asked for by anybody, and costs Temporal no more for it."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from bridge import ready
from bridge.errors import EngineUnavailable
from bridge.ready import Readiness


class Engine:
    """Counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.answers = True

    async def check(self) -> None:
        self.asked += 1
        await asyncio.sleep(0)
        if not self.answers:
            raise EngineUnavailable


async def status(readiness: Readiness) -> int:
    answer: web.Response = await readiness.answer(make_mocked_request("GET", "/readyz"))
    return answer.status


async def test_temporal_is_asked_once_for_all_who_ask_within_a_moment() -> None:
    engine = Engine()
    readiness = Readiness(engine.check)
    assert set(await asyncio.gather(*(status(readiness) for _ in range(50)))) == {200}
    assert engine.asked == 1


async def test_an_outage_and_its_end_are_told_after_that_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ready, "READY_SECONDS", 0.0)
    engine = Engine()
    readiness = Readiness(engine.check)
    told = []
    for answers in (True, False, True):
        engine.answers = answers
        told.append(await status(readiness))
    assert told == [200, 503, 200]
    assert engine.asked == 3


async def test_whoever_leaves_does_not_decide_for_others() -> None:
    engine = Engine()
    readiness = Readiness(engine.check)
    leaving = asyncio.create_task(status(readiness))
    await asyncio.sleep(0)
    leaving.cancel()
    assert await status(readiness) == 200
