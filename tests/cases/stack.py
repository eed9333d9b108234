"""The product as its operator runs it: Temporal, workers and bridges as processes of their own, which a case may stop
and kill."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from bridge.child import start_child, stop_child
from bridge.dev_server import DevServer, dev_server, free_port
from tests.encryption import key_environment
from tests.fixtures.case_parts import counter_file

ROOT: Final = Path(__file__).parents[2]
SEALING_KEY: Final = "k" * 32

UNLIMITED: Final = {
    f"MCP_TASKS_{limit}": "0"
    for limit in ("OPEN_TASKS_PER_OWNER", "WAITING_CALLS_PER_OWNER", "STREAMS_PER_OWNER", "STREAM_TASKS_PER_OWNER")
}
"""Settings for loads whose many users are one owner."""


@dataclass
class Process:
    """A worker or a bridge; `facts` is its ready line."""

    process: asyncio.subprocess.Process
    facts: dict[str, Any]

    @property
    def url(self) -> str:
        """A bridge's endpoint."""
        return str(self.facts["mcp"])

    async def kill(self) -> None:
        """SIGKILL: no chance to say goodbye."""
        self.process.kill()
        await self.process.wait()

    async def stop(self) -> int:
        """SIGTERM, and its exit status."""
        await stop_child(self.process, ask=signal.SIGTERM, patience=40)
        return self.process.returncode or 0

    def pause(self) -> None:
        """SIGSTOP: there, but dead to the world."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self.process.send_signal(signal.SIGCONT)


@dataclass(kw_only=True)
class Programs:
    """Workers and bridges of one Temporal. `environment` is what they are started with."""

    environment: dict[str, str]
    _processes: list[Process] = field(default_factory=list)

    async def worker(
        self, tasks: str = "tests.fixtures.cases", *, log: IO[bytes] | None = None, **variables: str
    ) -> Process:
        """Start a worker; it polls when this returns. `log` takes its standard error."""
        return await self._start("worker", "--tasks", tasks, log=log, variables=variables)

    async def bridge(
        self, tasks: str = "tests.fixtures.cases", *, port: int = 0, log: IO[bytes] | None = None, **variables: str
    ) -> Process:
        """Start a bridge; it listens when this returns. `log` takes its standard error."""
        return await self._start("bridge", "--port", str(port), "--tasks", tasks, log=log, variables=variables)

    async def _start(self, *command: str, log: IO[bytes] | None, variables: Mapping[str, str]) -> Process:
        child = await start_child(
            [sys.executable, "-m", "bridge.cli", *command, "--json"],
            environment={**self.environment, **variables},
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
        )
        assert child.stdout is not None
        async with asyncio.timeout(60):
            line = await child.stdout.readline()
        assert line, f"{command[0]} did not start"
        process = Process(child, json.loads(line))
        self._processes.append(process)
        return process

    def side_effects(self, label: str) -> int:
        """How many side effects `label` has had, counted without a worker."""
        file = counter_file(label, self.environment["CASES_COUNTER"])
        return file.stat().st_size if file.exists() else 0

    async def close(self) -> None:
        """Kill what is still running."""
        for process in self._processes:
            await stop_child(process.process, ask=signal.SIGKILL, patience=10)
        self._processes.clear()


@dataclass(kw_only=True)
class Stack(Programs):
    """One Temporal and whatever was started beside it."""

    temporal: DevServer


def program_environment(counter: Path, temporal: Mapping[str, str]) -> dict[str, str]:
    """What workers and bridges are started with; `temporal` says how Temporal is reached."""
    return {
        **temporal,
        **key_environment(),
        "PYTHONPATH": str(ROOT),
        "CASES_COUNTER": str(counter),
        "MCP_TASKS_SEALING_KEYS": SEALING_KEY,
        "MCP_TASKS_LOG_LEVEL": "error",
    }


@asynccontextmanager
async def running_stack(
    counter: Path, *, database: Path | None = None, port: int = 0, settings: Mapping[str, str] | None = None
) -> AsyncIterator[Stack]:
    """A Temporal with nothing beside it yet; side effects are counted in the folder `counter`. `settings` are for all
    that is started.
    """
    os.environ["CASES_COUNTER"] = str(counter)  # for cases that count without a worker
    async with dev_server(port=port or free_port(), database=database) as temporal:
        environment = {**program_environment(counter, temporal.environment), **(settings or {})}
        stack = Stack(temporal=temporal, environment=environment)
        try:
            yield stack
        finally:
            await stack.close()
