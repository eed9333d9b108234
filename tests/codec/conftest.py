"""The product as processes, with the keys that a test gives them, and a client that has none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest_asyncio
from google.protobuf import json_format
from temporalio.client import Client

from bridge.dev_server import DevServer
from tests.cases.stack import Process, Programs, program_environment
from tests.codec.keys import FIRST
from tests.encryption import KEY_VARIABLE
from tests.support import unique

TOOLS = "tests.codec.tools"


@dataclass
class Encrypted:
    """One queue with its programs. `plain` is a client of Temporal that has no codec."""

    programs: Programs
    plain: Client

    async def worker(self, keys: str = FIRST) -> Process:
        """A worker with this ring; none, if it is empty."""
        return await self.programs.worker(TOOLS, MCP_TASKS_ENCRYPTION_KEYS=keys)

    async def bridge(self, keys: str = FIRST) -> Process:
        """A bridge with this ring; none, if it is empty."""
        return await self.programs.bridge(TOOLS, MCP_TASKS_ENCRYPTION_KEYS=keys)

    async def stored(self, task_id: str) -> str:
        """All that Temporal tells of a task to a client without keys, bytes as their text."""
        handle = self.plain.get_workflow_handle(task_id)
        described = (await handle.describe()).raw_description
        history = await handle.fetch_history()
        return "\n".join([
            _text(described.SerializeToString()),
            *(_text(event.SerializeToString()) for event in history.events),
            json_format.MessageToJson(described),
        ])  # fmt: skip


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


@pytest_asyncio.fixture(loop_scope="session")
async def encrypted(temporal: DevServer, tmp_path: Path) -> AsyncIterator[Encrypted]:
    """A queue of its own, where nothing runs yet."""
    environment = {
        **program_environment(tmp_path, temporal.environment),
        "MCP_TASKS_TASK_QUEUE": unique("codec"),
        KEY_VARIABLE: "",
    }
    programs = Programs(environment=environment)
    yield Encrypted(programs, await Client.connect(temporal.address))
    await programs.close()
