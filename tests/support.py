"""Helpers that every kind of test shares."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from bridge.child import start_child, stop_child
from tests.encryption import key_environment

T = TypeVar("T")

ROOT = Path(__file__).parents[1]


async def eventually(probe: Callable[[], Awaitable[T | None]], *, what: str, within: float = 20.0) -> T:
    """The first truthy answer of `probe`, asked every few milliseconds; fails naming `what` after `within` seconds."""
    try:
        async with asyncio.timeout(within):
            while True:
                if answer := await probe():
                    return answer
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"waited {within} s for {what}") from None


def resident_bytes(pid: int) -> int:
    """Memory that a process holds in RAM. Linux only."""
    return int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def open_files(pid: int) -> int:
    """Descriptors that a process holds. Linux only."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def unique(prefix: str) -> str:
    """A name that no other test uses, for a task queue or an id."""
    return f"{prefix}-{uuid.uuid4().hex[:12]}"


def plain_environment(**variables: str) -> dict[str, str]:
    """This environment without settings of ours and Temporal's (but for the key, if tests are to encrypt), plus
    `variables`.
    """
    ours = ("MCP_TASKS_", "TEMPORAL_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {**kept, "TEMPORAL_CONFIG_FILE": os.devnull, **key_environment(), **variables}


class Program:
    """A running `mcp-tasks` command and what it said when it was ready."""

    def __init__(self, process: asyncio.subprocess.Process, ready: dict[str, Any]) -> None:
        self.process = process
        self.ready = ready

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    async def wait(self, within: float = 30.0) -> int:
        """Its exit status."""
        async with asyncio.timeout(within):
            return await self.process.wait()


@asynccontextmanager
async def mcp_tasks(
    *arguments: str, environment: Mapping[str, str] | None = None, within: float = 60.0
) -> AsyncIterator[Program]:
    """Run `mcp-tasks` with `arguments` and `--json` within the context, entered once it is ready; ended after it.

    Its log goes where pytest captures it. Fails if it ends before it is ready.
    """
    command = [sys.executable, "-m", "bridge.cli", *arguments, "--json"]
    process = await start_child(command, environment=environment or plain_environment(), stdout=asyncio.subprocess.PIPE)
    assert process.stdout
    try:
        async with asyncio.timeout(within):
            line = await process.stdout.readline()
        assert line, f"mcp-tasks {' '.join(arguments)} ended with {await process.wait()} before it was ready"
        yield Program(process, json.loads(line))
    finally:
        await stop_child(process, ask=signal.SIGTERM, patience=30)


async def run_to_end(
    *arguments: str, environment: Mapping[str, str] | None = None, within: float = 60.0
) -> tuple[int, str, str]:
    """Run `mcp-tasks` with `arguments` to its end: exit status, standard output, standard error."""
    command = [sys.executable, "-m", "bridge.cli", *arguments]
    process = await start_child(
        command,
        environment=environment or plain_environment(),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(within):
            output, errors = await process.communicate()
    finally:
        await stop_child(process, ask=signal.SIGKILL, patience=1)
    assert process.returncode is not None
    return process.returncode, output.decode(), errors.decode()
