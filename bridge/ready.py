"""Readiness: whether Temporal answers for our namespace. Anybody may ask, so Temporal is asked once for all who ask
within a moment: its limits are the namespace's, and would be used up for the tasks, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

from bridge.errors import BridgeError

READY_SECONDS: Final = 1.0
"""How long an answer of Temporal's counts."""


class Readiness:
    """Answers `GET /readyz`."""

    def __init__(self, check: Callable[[], Awaitable[None]]) -> None:
        """`check` raises BridgeError if Temporal does not answer."""
        self._check = check
        self._asking = asyncio.Lock()
        self._ask_again_at = 0.0
        self._ready = False

    async def answer(self, _request: web.Request) -> web.Response:
        """200 if it is ready, else 503."""
        now = asyncio.get_running_loop().time
        async with self._asking:
            if now() >= self._ask_again_at:
                try:
                    await self._check()
                    self._ready = True
                except BridgeError:
                    self._ready = False
                self._ask_again_at = now() + READY_SECONDS
        if self._ready:
            return web.Response(text="ok\n")
        return web.Response(status=503, text="Temporal cannot be reached\n")
