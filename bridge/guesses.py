"""How often one address may try a token that is not the right one.

The right one is not even looked at once an address has guessed too often, or guessing would cost nothing. So whoever
comes from the same address waits, too: behind a proxy that is everybody, which is one reason more for a proxy, or an
authorization server, to know who calls.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable
from typing import Final

from aiohttp import hdrs, web

from bridge.identity import Authenticator, Identity, Unauthenticated
from bridge.rates import Rate
from bridge.too_many import TooMany

GUESSES_PER_SECOND: Final = 5.0
GUESSES_AT_ONCE: Final = 100

_PREFIX: Final = 64
"""Bits of an IPv6 address that tell callers apart: each has all that is below."""


def bounded_guesses(authenticate: Authenticator, clock: Callable[[], float] = time.monotonic) -> Authenticator:
    """`authenticate`, for callers whose address has not shown too many wrong credentials; others get 429."""
    wrong = Rate(GUESSES_PER_SECOND, GUESSES_AT_ONCE, clock)

    async def bounded(request: web.Request) -> Identity:
        address = _address(request.remote)
        if hdrs.AUTHORIZATION in request.headers and not wrong.allows(address):
            raise TooMany("Too many wrong credentials came from this address; try again later")
        try:
            return await authenticate(request)
        except Unauthenticated:
            if hdrs.AUTHORIZATION in request.headers:
                wrong.take(address)
            raise

    return bounded


def _address(remote: str | None) -> str:
    try:
        address = ipaddress.ip_address((remote or "").partition("%")[0])
    except ValueError:  # e.g. a socket of this machine
        return remote or ""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, _PREFIX), strict=False))
    return str(address)
