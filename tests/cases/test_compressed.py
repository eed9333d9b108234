"""PL-11: no body is unpacked, so a small one cannot become a large one, whoever sends it."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest
import pytest_asyncio

from tests.cases.client import McpClient
from tests.cases.processes import MEGABYTE
from tests.cases.stack import Process, Stack
from tests.support import resident_bytes

pytestmark = pytest.mark.asyncio(loop_scope="session")

TOKEN: Final = "a-token-of-the-bombs"
BOMB_BYTES: Final = 200 * MEGABYTE
ROUNDS: Final = 20


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def guarded(stack: Stack, worker: Process) -> Process:
    """A bridge that wants a token, and does nothing else."""
    return await stack.bridge(MCP_TASKS_BEARER_TOKEN=TOKEN)


@pytest_asyncio.fixture(loop_scope="session")
async def known(guarded: Process) -> AsyncIterator[McpClient]:
    """A client of that bridge with the token."""
    async with McpClient(guarded.url, token=TOKEN) as client:
        yield client


def bomb() -> bytes:
    """Some 200 KB that unpack to `BOMB_BYTES` of JSON."""
    packing = zlib.compressobj(9, wbits=31)
    pieces = [packing.compress(b" " * MEGABYTE) for _ in range(BOMB_BYTES // MEGABYTE)]
    return b"".join(pieces) + packing.compress(b"{}") + packing.flush()


CODINGS: Final[dict[str, Any]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": lambda body: body,
    "zstd": lambda body: b"\x28\xb5\x2f\xfd" + body,
    "gzip, gzip": lambda body: gzip.compress(gzip.compress(body)),
    "x-gzip": gzip.compress,
    "GZIP": lambda body: gzip.compress(body)[:-9],  # corrupt
}


@pytest.mark.parametrize("coding", CODINGS)
async def test_a_compressed_body_is_refused_by_name(known: McpClient, coding: str) -> None:
    body = CODINGS[coding](b'{"jsonrpc":"2.0","id":1,"method":"server/discover"}')
    reply = await known.post(body, known.headers("server/discover", {}) | {"Content-Encoding": coding})
    assert (reply.status, reply.code) == (415, -32600)
    assert "Content-Encoding" in reply.message["error"]["message"]
    assert (await known.request("server/discover")).status == 200


@pytest.mark.parametrize("token", [True, False], ids=["token", "no token"])
@pytest.mark.parametrize("labelled", [True, False], ids=["labelled", "unlabelled"])
async def test_a_bomb_takes_no_memory(known: McpClient, guarded: Process, token: bool, labelled: bool) -> None:
    headers = known.headers("server/discover", {})
    if not token:
        del headers["Authorization"]
    if labelled:
        headers["Content-Encoding"] = "gzip"
    body = bomb()
    assert len(body) < MEGABYTE
    before = resident_bytes(guarded.process.pid)
    statuses = {(await known.post(body, headers)).status for _ in range(ROUNDS)}
    assert statuses == ({401} if not token else {415} if labelled else {400})
    assert resident_bytes(guarded.process.pid) - before < 50 * MEGABYTE
    assert (await known.request("server/discover")).status == 200
