"""The HTTP requests of a crawl, one by one: bounded, without cookies, proxies or redirects, and never into the worker's
own network.

Addresses are checked where they are used: the connector connects to what its resolver gave, so a name that resolves
differently a moment later (DNS rebinding) leads nowhere else. An operator opens private addresses with
`MCP_TASKS_CRAWL_ALLOW_PRIVATE=1`.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver
from yarl import URL

from workflows.kit.errors import ToolError

ALLOW_PRIVATE_VARIABLE: Final = "MCP_TASKS_CRAWL_ALLOW_PRIVATE"
AGENT: Final = "mcp-temporal-tasks"
REQUEST_SECONDS: Final = 20.0
TRIES: Final = 2
RETRY_SECONDS: Final = 1.0

_HOST: Final = re.compile(r"[0-9A-Za-z.:_-]+")  # as sent: an international name is encoded by now
_TRY_AGAIN: Final = frozenset({429, 502, 503, 504})
_NO_URL: Final = (ValueError, IndexError)  # what yarl raises, the latter for `//[]@`
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
_UNICAST: Final = ipaddress.ip_network("2000::/3")
"""All that the internet has of IPv6; what else counts as global may be a network's own, as `fec0::/10` was."""


class ForbiddenAddressError(OSError):
    """A name that resolves to nothing that may be visited."""


@dataclass(frozen=True)
class Answer:
    """What a server said. `body` is None when it is encoded, and not `whole` when it is larger than asked for."""

    status: int
    headers: Mapping[str, str]
    body: bytes | None
    whole: bool = True


def private_allowed() -> bool:
    """Whether this worker's operator opened private addresses."""
    return os.environ.get(ALLOW_PRIVATE_VARIABLE) == "1"


def public(address: str) -> bool:
    """Whether an IP address is one of the public internet, also when it stands for an IPv4 one."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
        if inner is None and ip in _NAT64:
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner is not None:
            return public(str(inner))
        if ip not in _UNICAST:
            return False
    return ip.is_global and not ip.is_multicast


class GuardedResolver(AbstractResolver):
    """Resolves names to public addresses only."""

    def __init__(self) -> None:
        """Resolve as the system does, in a thread."""
        self._system = ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """The public addresses of `host`.

        Raises:
            ForbiddenAddressError: It has none, but others.
            OSError: It has none at all.
        """
        found = await self._system.resolve(host, port, family)
        allowed = [result for result in found if public(result["host"])]
        if not allowed:
            raise ForbiddenAddressError(f"{host} has no public address")
        return allowed

    async def close(self) -> None:
        """Nothing is held."""
        await self._system.close()


def parse_url(text: str) -> URL | None:
    """A http or https URL in canonical form, without fragment; None if it is none, or has a user name or password."""
    try:
        url = URL(text.strip()).with_fragment(None)
        plain = url.scheme in {"http", "https"} and url.port and url.user is None and url.password is None
        named = bool(url.host)  # decodes an international name, which may be none
    except _NO_URL:
        return None
    if not plain or not named or not _HOST.fullmatch(url.raw_host or ""):
        return None
    return url.with_path("/", keep_query=True) if url.path == "/" else url  # spells out the path of a bare site


def joined(base: URL, reference: str) -> URL | None:
    """Where a reference found at `base` leads, as `parse_url` gives it."""
    try:
        return parse_url(str(base.join(URL(reference.strip()))))
    except _NO_URL:
        return None


async def check_address(url: URL) -> None:
    """Refuse a start address that this worker must not visit.

    Raises:
        ToolError: It is private, or cannot be resolved.
    """
    host = url.host or ""
    try:
        allowed = _literal_allowed(host)
        if allowed and not private_allowed() and not _is_ip(host):
            await GuardedResolver().resolve(host, url.port or 0)
    except ForbiddenAddressError:
        allowed = False
    except OSError:
        raise ToolError(f"There is no site {host}.") from None
    if not allowed:
        raise ToolError(f"{host} is not on the public internet, and this worker may visit nothing else.")


def session() -> aiohttp.ClientSession:
    """A session with the guard above; close it."""
    guard = None if private_allowed() else GuardedResolver()
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(resolver=guard),
        timeout=aiohttp.ClientTimeout(total=REQUEST_SECONDS),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"User-Agent": f"{AGENT} (crawl_site)", "Accept-Encoding": "identity"},
        auto_decompress=False,  # a small answer must not unpack to a large one
    )


async def get(client: aiohttp.ClientSession, url: URL, *, max_bytes: int, authorization: str | None = None) -> Answer:
    """Ask for `url`, once.

    Raises:
        aiohttp.ClientError, TimeoutError: There was no answer, or none in time.
    """
    if not _literal_allowed(url.host or ""):
        raise aiohttp.ClientConnectionError("private address")
    headers = {} if authorization is None else {"Authorization": authorization}
    async with client.get(url, allow_redirects=False, headers=headers) as response:
        if response.headers.get("Content-Encoding", "identity").lower() != "identity":
            return Answer(response.status, response.headers, None)
        body = bytearray()
        async for chunk in response.content.iter_chunked(64 * 1024):
            body += chunk
            if len(body) > max_bytes:
                return Answer(response.status, response.headers, bytes(body[:max_bytes]), whole=False)
        return Answer(response.status, response.headers, bytes(body))


async def ask(
    client: aiohttp.ClientSession, url: URL, *, max_bytes: int, authorization: str | None = None
) -> Answer | str:
    """The server's answer, or in words why there is none; tried again once if that may help."""
    for attempt in range(1, TRIES + 1):
        try:
            answer: Answer | str = await get(client, url, max_bytes=max_bytes, authorization=authorization)
        except TimeoutError:
            answer = "no answer in time"
        except (aiohttp.ClientError, ValueError):
            answer = "no connection"
        if attempt < TRIES and (isinstance(answer, str) or answer.status in _TRY_AGAIN):
            await asyncio.sleep(RETRY_SECONDS)
        else:
            return answer
    raise AssertionError  # the last attempt returns


def location(url: URL, answer: Answer) -> URL | None:
    """Where an answer of `url` redirects to, if to a usable address."""
    if not 300 <= answer.status < 400 or "Location" not in answer.headers:
        return None
    return joined(url, answer.headers["Location"])


def _literal_allowed(host: str) -> bool:
    """Whether a host may be connected to as far as its spelling tells: a literal address never comes to the
    resolver."""
    return private_allowed() or not _is_ip(host) or public(host)


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True
