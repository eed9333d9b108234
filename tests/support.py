"""Helpers that every kind of test shares."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def eventually(probe: Callable[[], Awaitable[T | None]], *, what: str, within: float = 20.0) -> T:
    """The first truthy answer of `probe`, asked every few milliseconds; fails naming `what` after `within` seconds."""
    try:
        async with asyncio.timeout(within):
            while not (answer := await probe()):
                await asyncio.sleep(0.01)
            return answer
    except TimeoutError:
        raise AssertionError(f"waited {within} s for {what}") from None
