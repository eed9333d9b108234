"""A catalog entry whose workers have no codec: what is written for them is plain, and reading takes both."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.dev_server import DevServer
from tests.cases.client import accept
from tests.codec.conftest import Encrypted
from tests.codec.keys import FIRST
from tests.encryption import for_workers_without_codec
from tests.foreign.running import PLAIN_PYTHON, cataloged, foreign_worker, python

pytestmark = pytest.mark.asyncio(loop_scope="session")

INVOICE = {"id": "mark-invoice", "cents": 1250}


async def test_a_worker_without_a_codec_is_served_in_plain_text(
    temporal: DevServer, encrypted: Encrypted, tmp_path: Path
) -> None:
    """Arguments, memo, answers by signal, the view in the memo, result and failure."""
    catalog = for_workers_without_codec(PLAIN_PYTHON / "catalog.toml", tmp_path)
    async with (
        foreign_worker(temporal, *python(PLAIN_PYTHON / "worker.py")),
        cataloged(temporal, catalog, FIRST) as client,
    ):
        task_id = await client.start("approve_invoice", INVOICE)
        (key,) = await client.parked(task_id)
        await client.update(task_id, {key: accept(approve=True)})
        task = await client.finished(task_id)
        assert task["result"]["structuredContent"] == {"invoice": "mark-invoice", "approved": True}
        stored = await encrypted.stored(task_id)
        assert "mark-invoice" in stored and "binary/encrypted" not in stored


async def test_a_task_is_answered_in_plain_text_when_its_tool_is_gone(
    temporal: DevServer, encrypted: Encrypted, tmp_path: Path
) -> None:
    """Encrypted, the answer would be acknowledged and lost: its worker cannot read it."""
    catalog = for_workers_without_codec(PLAIN_PYTHON / "catalog.toml", tmp_path)
    async with foreign_worker(temporal, *python(PLAIN_PYTHON / "worker.py")):
        async with cataloged(temporal, catalog, FIRST) as client:
            task_id = await client.start("approve_invoice", INVOICE)
            (key,) = await client.parked(task_id)
        before, _, _ = catalog.read_text("utf-8").partition("[tools.approve_invoice]")
        catalog.write_text(before, "utf-8")
        async with cataloged(temporal, catalog, FIRST) as client:
            await client.update(task_id, {key: accept(approve=True)})
            task = await client.finished(task_id)
            assert task["result"]["structuredContent"] == {"invoice": "mark-invoice", "approved": True}
    assert "binary/encrypted" not in await encrypted.stored(task_id)
