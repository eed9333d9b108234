"""Temporal, a worker and a bridge as three processes, as in a deployment; their logs go to files."""

from __future__ import annotations

import asyncio
import json
import secrets
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

from bridge.child import start_child, stop_child
from bridge.dev_server import DevServer, dev_server
from bridge.settings import MIN_SEALING_KEY_BYTES, PREFIX, OperatorError

READY_WITHIN: Final = 60.0


class Stack:
    """The running processes."""

    def __init__(self, server: DevServer, folder: Path, environment: Mapping[str, str]) -> None:
        self.server = server
        self._folder = folder
        self._environment = {**server.environment, **environment}
        self._processes: dict[str, asyncio.subprocess.Process] = {}

    async def start(self, command: str, *options: str) -> dict[str, Any]:
        """Start `mcp-tasks COMMAND`; what it says when it is ready.

        Raises:
            OperatorError: It ended instead; its log is in the message.
        """
        log = self._folder / f"{command}.log"
        with log.open("ab") as errors:
            process = await start_child(
                [sys.executable, "-m", "bridge.cli", command, "--json", *options],
                environment=self._environment,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
            )
        self._processes[command] = process
        assert process.stdout is not None  # noqa: S101  # a pipe was asked for
        async with asyncio.timeout(READY_WITHIN):
            line = await process.stdout.readline()
        if not line:
            raise OperatorError(f"the {command} did not start: {log.read_text('utf-8')[-500:]}")
        ready: dict[str, Any] = json.loads(line)
        return ready

    async def kill(self, command: str) -> int:
        """End a process as a power cut would; its process id."""
        process = self._processes.pop(command)
        await stop_child(process, ask=signal.SIGKILL, patience=5)
        return process.pid

    async def stop(self) -> None:
        """End every process in order, the latest first."""
        for process in reversed(self._processes.values()):
            await stop_child(process, ask=signal.SIGTERM, patience=30)


@asynccontextmanager
async def stack_in(folder: Path, environment: Mapping[str, str]) -> AsyncIterator[Stack]:
    """A Temporal server with a database in `folder`; whatever else is started is ended with the context."""
    key = secrets.token_hex(MIN_SEALING_KEY_BYTES)
    async with AsyncExitStack() as exits:
        server = await exits.enter_async_context(dev_server(ui_port=0, database=folder / "temporal.db"))
        stack = Stack(server, folder, {**environment, f"{PREFIX}SEALING_KEYS": key})
        exits.push_async_callback(stack.stop)
        yield stack
