"""`mcp-tasks dev` with a key: kept beside the database, used by worker and bridge, and by the web page alone."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Final

import aiohttp
from google.protobuf import json_format
from temporalio.api.common.v1 import Payloads
from temporalio.client import Client

from tests.cases.client import McpClient
from tests.codec.keys import FIRST, codec
from tests.support import Program, mcp_tasks, plain_environment

TOOLS: Final = ("--tasks", "tests.codec.tools")
ANY_PORTS: Final = ("--port", "0", "--temporal-port", "0", "--ui-port", "0")


async def asked_for(program: Program) -> str:
    """A task of the stack that asks its question."""
    async with McpClient(program.ready["mcp"]) as client:
        task_id = await client.start("confide", {"secret": "mark-argument"})
        await client.parked(task_id)
        return task_id


async def test_a_database_has_a_key_of_its_own_that_is_private_and_kept(tmp_path: Path) -> None:
    database = tmp_path / "tasks.db"
    environment = plain_environment(MCP_TASKS_LOG_LEVEL="error")
    environment.pop("MCP_TASKS_ENCRYPTION_KEYS", None)
    command = ("dev", *ANY_PORTS, *TOOLS, "--db", str(database))
    async with mcp_tasks(*command, environment=environment) as dev:
        key = tmp_path / "tasks.db.encryption-key"
        content = key.read_text("ascii").strip()
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
        task_id = await asked_for(dev)
        plain = await Client.connect(dev.ready["temporal"])
        history = await plain.get_workflow_handle(task_id).fetch_history()
        assert "mark-" not in str(history.events)
        arguments = history.events[0].workflow_execution_started_event_attributes.input
        assert await codec(content).decode(arguments.payloads) != list(arguments.payloads)
        await assert_the_page_may_decrypt(dev, arguments)
    async with mcp_tasks(*command, environment=environment) as dev, McpClient(dev.ready["mcp"]) as client:
        assert key.read_text("ascii").strip() == content
        assert (await client.parked(task_id))["answer"]["params"]["message"] == "mark-question mark-argument?"


async def assert_the_page_may_decrypt(dev: Program, arguments: Payloads) -> None:
    """The web page knows the codec server, and a page of elsewhere gets nothing from it."""
    endpoint, body = dev.ready["codec"], json_format.MessageToDict(arguments)
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{dev.ready['ui']}/api/v1/settings") as settings:
            assert (await settings.json())["Codec"]["Endpoint"] == endpoint
        for origin, status in ((dev.ready["ui"], 200), ("http://localhost:1", 403), ("https://evil.example", 403)):
            async with session.post(f"{endpoint}/decode", json=body, headers={"Origin": origin}) as answer:
                assert answer.status == status
                if status == 200:
                    (payload,) = json_format.ParseDict(await answer.json(), Payloads()).payloads
                    assert b"mark-argument" in payload.data


async def test_without_a_key_nothing_is_encrypted_and_nobody_decrypts() -> None:
    environment = plain_environment(MCP_TASKS_LOG_LEVEL="error", MCP_TASKS_ENCRYPTION_KEYS="")
    async with mcp_tasks("dev", *ANY_PORTS, *TOOLS, environment=environment) as dev:
        assert dev.ready["codec"] is None


async def test_keys_that_are_set_go_before_the_database_s(tmp_path: Path) -> None:
    environment = plain_environment(MCP_TASKS_LOG_LEVEL="error", MCP_TASKS_ENCRYPTION_KEYS=FIRST)
    command = ("dev", *ANY_PORTS, *TOOLS, "--db", str(tmp_path / "tasks.db"))
    async with mcp_tasks(*command, environment=environment) as dev:
        task_id = await asked_for(dev)
        plain = await Client.connect(dev.ready["temporal"])
        history = await plain.get_workflow_handle(task_id).fetch_history()
    (payload,) = history.events[0].workflow_execution_started_event_attributes.input.payloads
    assert payload.metadata["encryption-key-id"] == b"autumn"
