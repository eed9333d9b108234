"""The clients behind the gateway, and the bounds of every call.

Each call has three bounds: a timeout per attempt, a strict retry budget in the client, and a timeout around the lot,
since either of the first two alone let a call hang for 10 to 16 s on a frozen server. Long polls go through a second
client on the same runtime with the SDK's default retries.

The clients connect at their first call, so that the bridge starts, and says so, while Temporal is away.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from types import TracebackType
from typing import Any, Final, Self

from temporalio.client import Client
from temporalio.converter import DataConverter
from temporalio.runtime import Runtime
from temporalio.service import RetryConfig, RPCError

from bridge.codec import unencrypted
from bridge.errors import EngineUnavailable, is_connect_failure, translate
from bridge.payloads import Parsed, Payloads, nothing_parsed

logger = logging.getLogger(__name__)

ATTEMPT: Final = timedelta(seconds=2)
CALL_SECONDS: Final = 3.0
STRICT: Final = RetryConfig(max_retries=2, max_elapsed_time_millis=1000)


@dataclass(frozen=True, slots=True)
class Connection:
    """`client` for requests, `watcher` for long polls, `plain` for what is written to workers that have no codec. Bound
    to the event loop that made it.
    """

    client: Client
    watcher: Client
    plain: Client
    _parsed: Parsed = field(default_factory=nothing_parsed)

    @classmethod
    async def open(
        cls, connect_config: Mapping[str, Any], data_converter: DataConverter, runtime: Runtime | None, **options: Any
    ) -> Self:
        """Lazy clients; `options` go to all of them unchanged."""
        shared: dict[str, Any] = {
            **connect_config,
            **options,
            "data_converter": data_converter,
            "runtime": runtime,
            "identity": f"mcp-bridge@{socket.gethostname()}",
            "lazy": True,
        }
        client = await Client.connect(**shared, retry_config=STRICT)
        plain_config = client.config()
        plain_config["data_converter"] = unencrypted(data_converter)
        plain = Client(**plain_config)
        return cls(client, await Client.connect(**shared), plain)

    def payloads(self, task_id: str) -> Payloads:
        """Reader of the payloads of one task."""
        return Payloads(self.client.data_converter, self.client.namespace, task_id, self._parsed)

    def bounded(self, operation: str, seconds: float = CALL_SECONDS) -> Bounded:
        """Bounds what is done in it, and turns every way in which Temporal can fail into a `BridgeError`."""
        return Bounded(operation, seconds)


class Bounded:
    """An async context; a class, because a generator costs more than all the rest of it in each call."""

    __slots__ = ("_operation", "_timeout")

    def __init__(self, operation: str, seconds: float) -> None:
        self._operation = operation
        self._timeout = asyncio.timeout(seconds)

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self._timeout.__aexit__(kind, error, traceback)
        except TimeoutError as timeout:
            error = timeout
        if isinstance(error, RPCError):
            raise translate(error, self._operation) from error
        if isinstance(error, TimeoutError):
            logger.warning("engine.timeout", extra={"operation": self._operation})
            raise EngineUnavailable from error
        if isinstance(error, RuntimeError) and is_connect_failure(error):
            logger.warning("engine.unreachable", extra={"operation": self._operation, "detail": str(error)})
            raise EngineUnavailable from error
