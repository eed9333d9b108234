"""The tool of the guide to secrets: its client sees what the page shows, and a person enters the rest."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
from pydantic import SecretStr

from bridge.dev_keys import answer_public_key, new_answer_key
from bridge.dev_server import DevServer, free_port
from tests.authserver.browser import browser
from tests.cases.client import McpClient
from tests.cases.stack import Programs, program_environment
from tests.docs.pages import DOCS, blocks
from tests.pages.browsing import send, visit
from tests.pages.conftest import OPENS_PAGES
from tests.support import ROOT, unique

PAGE: Final = DOCS / "how-to" / "ask-for-a-secret.md"


@asynccontextmanager
async def archive(temporal: DevServer, folder: Path) -> AsyncIterator[McpClient]:
    """A client of the page's tool."""
    (code,) = blocks(PAGE, "python")
    (folder / "archive.py").write_text(code, "utf-8")
    private = new_answer_key()
    environment = program_environment(folder, temporal.environment) | {
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(folder))),
        "MCP_TASKS_TASK_QUEUE": unique("docs"),
    }
    programs = Programs(environment=environment)
    try:
        await programs.worker("archive", MCP_TASKS_ANSWER_PRIVATE_KEYS=private.get_secret_value())
        bridge = await programs.bridge(
            "archive", port=free_port(), MCP_TASKS_ANSWER_PUBLIC_KEY=answer_public_key(private)
        )
        async with McpClient(bridge.url, OPENS_PAGES) as client:
            yield client
    finally:
        await programs.close()


@pytest.mark.asyncio(loop_scope="session")
async def test_the_tool_of_the_guide_gets_what_a_person_enters(temporal: DevServer, tmp_path: Path) -> None:
    (shown,) = blocks(PAGE, "json")
    async with archive(temporal, tmp_path) as client, browser() as session:
        task_id = await client.start("fetch_archive", {"name": "A-17"})
        (request,) = (await client.parked(task_id)).values()
        alike = re.sub(r"task-[0-9a-f]{32}", task_id, re.sub(r"http://127\.0\.0\.1:8000", client.url[:-4], shown))
        assert request == json.loads(alike)
        page = await visit(session, request["params"]["url"])
        assert (await send(session, page, {"f.user": "ann", "f.password": "x"})).status == 200
        result = (await client.finished(task_id))["result"]
    assert result["content"][0]["text"] == "Fetched as ann."


def test_the_commands_of_the_guide_make_a_pair(tmp_path: Path) -> None:
    (console,) = blocks(PAGE, "console")
    commands = [line.removeprefix("$ ") for line in console.splitlines() if line.startswith("$ ")]
    done = subprocess.run(  # noqa: S603 - our own page
        ["/bin/bash", "-ec", "\n".join(commands)], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    private, public = done.stdout.split()
    assert answer_public_key(SecretStr(private)) == public
    assert (tmp_path / "answer-key.pem").stat().st_mode & 0o077 == 0
