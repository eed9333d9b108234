"""The authorization server as a test has it: started, asked for tokens, rotated, paused and killed.

`token` gives access tokens for machines. To sign in with a browser, send it to an address that redirects to the
server's `/auth`, for the client `pages` (secret `pages-secret`, any redirect to 127.0.0.1), and use `browser.sign_in`.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import aiohttp

from bridge.child import start_child, stop_child
from tests.foreign.running import NODE, install_packages
from tests.support import plain_environment

FOLDER: Final = Path(__file__).parent

ALL: Final = "tasks:call tasks:read tasks:answer"
"""What an ordinary client asks for."""


@dataclass
class AuthServer:
    """A running server."""

    issuer: str
    process: asyncio.subprocess.Process
    _session: aiohttp.ClientSession = field(default_factory=aiohttp.ClientSession)

    async def token(
        self, who: str, resource: str, scope: str = ALL, *, ttl: int | None = None, algorithm: str | None = None
    ) -> str:
        """An access token whose subject and client are `who`, one of the names in `server.mjs`."""
        told = {"X-Token-TTL": None if ttl is None else str(ttl), "X-Token-Alg": algorithm}
        form = {
            "grant_type": "client_credentials",
            "client_id": who,
            "client_secret": f"{who}-secret",
            "resource": resource,
            "scope": scope,
        }
        headers = {name: value for name, value in told.items() if value is not None}
        async with self._session.post(f"{self.issuer}/token", data=form, headers=headers) as response:
            answer = await response.json()
            assert response.status == 200, answer
            return str(answer["access_token"])

    async def rotate(self, *, keep: bool = False) -> None:
        """Sign with new keys from now on; the old ones are published as well if they are to be kept."""
        async with self._session.post(f"{self.issuer}/test/rotate{'?keep' if keep else ''}") as response:
            assert response.status == 204

    def pause(self) -> None:
        """SIGSTOP: connections are taken, and nothing is answered."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self.process.send_signal(signal.SIGCONT)

    async def kill(self) -> None:
        """SIGKILL: nobody listens any more."""
        self.process.kill()
        await self.process.wait()

    async def close(self) -> None:
        """End it."""
        await self._session.close()
        await stop_child(self.process, ask=signal.SIGKILL, patience=10)


@asynccontextmanager
async def authorization_server(port: int = 0) -> AsyncIterator[AuthServer]:
    """A server on loopback within the context, installed at first use. Raises Uninstallable."""
    await install_packages(FOLDER)
    process = await start_child(
        [NODE, str(FOLDER / "server.mjs"), str(port)],
        environment=plain_environment(),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,  # it warns that this is no server for production
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            line = await process.stdout.readline()
        assert line, "the authorization server did not start"
        server = AuthServer(json.loads(line)["issuer"], process)
    except BaseException:
        await stop_child(process, ask=signal.SIGKILL, patience=10)
        raise
    try:
        yield server
    finally:
        await server.close()
