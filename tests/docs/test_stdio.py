"""What "Connect over stdio" has its reader type prints what the page shows, but for ids, times and settings."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path
from typing import Final

import pytest

from bridge.dev_server import DevServer
from tests.cases.stack import Programs, program_environment
from tests.docs.pages import DOCS, blocks
from tests.encryption import KEY_VARIABLE, KEYS
from tests.support import ROOT, unique

PAGE: Final = DOCS / "how-to" / "connect-over-stdio.md"
TRACK, MESSAGES = range(2)

_VARYING: Final = re.compile(r"task-[0-9a-f]{32}|\d{4}-\d\d-\d\dT[\d:.]+Z")


def shown() -> list[str]:
    """The answers on the page: those to a client without forms, and those of the try by hand."""
    return [block for block in blocks(PAGE, "text") if block.startswith('{"jsonrpc"')]


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize(("number", "tasks"), [(TRACK, "orders"), (MESSAGES, "bridge.shipped")])
async def test_a_command_prints_what_the_page_shows(
    number: int, tasks: str, temporal: DevServer, tmp_path: Path
) -> None:
    (tmp_path / "orders.py").write_text(blocks(PAGE, "python")[0], "utf-8")
    (tmp_path / ".run").mkdir()
    (tmp_path / ".run" / "tasks.db.encryption-key").write_text(KEYS, "utf-8")
    (tmp_path / ".venv").symlink_to(Path(sys.prefix))
    environment = program_environment(tmp_path, temporal.environment)
    environment |= {
        KEY_VARIABLE: KEYS,
        "MCP_TASKS_TASK_QUEUE": unique("docs"),
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(tmp_path))),
    }
    programs = Programs(environment=environment)
    try:
        await programs.worker(tasks)
        process = await asyncio.create_subprocess_exec(
            *("bash", "-euc", blocks(PAGE, "bash")[number]),
            cwd=tmp_path,
            env=environment,
            stdout=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(60):
            output = (await process.communicate())[0].decode()
    finally:
        await programs.close()
    assert _VARYING.sub("*", output) == _VARYING.sub("*", shown()[number])
