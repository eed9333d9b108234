"""The script of "Repeat a call safely" prints what the page shows."""

from __future__ import annotations

import asyncio
import re
import shutil
from pathlib import Path
from typing import Final

import pytest

from bridge.dev_server import DevServer
from tests.cases.stack import Programs, program_environment
from tests.docs.pages import DOCS, blocks
from tests.support import unique

PAGE: Final = DOCS / "how-to" / "repeat-a-call-safely.md"

_ID: Final = re.compile(r"task-[0-9a-f]{32}")


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.asyncio(loop_scope="session")
async def test_the_script_prints_what_the_page_shows(temporal: DevServer, tmp_path: Path) -> None:
    (script,) = blocks(PAGE, "bash")
    (shown,) = blocks(PAGE, "console")
    file = tmp_path / "repeat.sh"
    file.write_text(script, "utf-8")
    environment = program_environment(tmp_path, temporal.environment)
    programs = Programs(environment={**environment, "MCP_TASKS_TASK_QUEUE": unique("docs")})
    try:
        bridge = await programs.bridge("bridge.shipped")
        process = await asyncio.create_subprocess_exec(
            "bash", str(file), bridge.url, unique("deploy"), stdout=asyncio.subprocess.PIPE
        )
        output = (await process.communicate())[0].decode()
    finally:
        await programs.close()
    assert len(set(_ID.findall(output))) == 1
    assert _ID.sub("*", output) == _ID.sub("*", shown.partition("\n")[2])
