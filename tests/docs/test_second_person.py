"""The tool that the guide to separation of duties shows: its owner gets what the page prints; another approves."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest
from temporalio.client import Client

from bridge.dev_server import DevServer
from tests.cases.client import accept
from tests.docs.pages import DOCS, blocks
from tests.docs.test_quick_start import answered, printed
from tests.docs.test_tools import REFUND, served
from tests.encryption import CONVERTER
from tests.support import eventually
from workflows.kit.contract import UPDATE_SIGNAL, Actor, UpdateSignal

PAGE: Final = DOCS / "how-to" / "require-a-second-person.md"
BOSS: Final = Actor(issuer="local", subject="boss", channel="http")


@pytest.mark.asyncio(loop_scope="session")
async def test_the_tool_of_the_guide_waits_for_somebody_else(temporal: DevServer, tmp_path: Path) -> None:
    (code,) = blocks(PAGE, "python")
    answers = {"approval": accept(approve=True)}
    async with served(code, temporal, tmp_path) as client:
        task_id = await client.start("refund", REFUND)

        async def asked() -> bool:
            return "statusMessage" in (await client.get(task_id)).result

        await eventually(asked, what="the question")
        shown = [await client.get(task_id), await client.update(task_id, answers)]
        assert [answered(reply.message) for reply in shown] == printed(PAGE)
        engine = await Client.connect(temporal.address, data_converter=CONVERTER)
        signal = UpdateSignal(responses=answers, actor=BOSS, at=datetime.now(UTC))
        await engine.get_workflow_handle(task_id).signal(UPDATE_SIGNAL, signal.to_json())
        result = (await client.finished(task_id))["result"]
    assert result["content"][0]["text"] == "Paid back 1250 cents for order A-17."
