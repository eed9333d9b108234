"""A fresh server for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.transport.toy import Served, serving


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    async with serving() as running:
        yield running
