"""Who calls, as a proxy in front says that has signed them in.

What the headers say counts if and only if the connection itself comes from a configured network; the address is the
socket's, never one that a header claims. Whoever else sends such headers is nobody. The proxy has to take away what
its own callers sent under these names.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from bridge.headers import Headers
from bridge.identity import Identity, Unauthenticated, is_subject
from workflows.kit.contract import Principal

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

ISSUER: Final = "proxy"
"""The issuer of all that a trusted proxy has signed in."""

CHALLENGE: Final = "Trusted-Proxy"
"""HTTP wants a challenge; no client can meet this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustedProxy:
    """An `Authenticator`. Without a scopes header callers may do everything of their own."""

    networks: Sequence[Network]
    user_header: str
    groups_header: str
    scopes_header: str | None = None

    async def __call__(self, request: web.Request) -> Identity:
        """Who sent `request`. Raises Unauthenticated."""
        peer = request.transport.get_extra_info("peername") if request.transport else None
        users = request.headers.getall(self.user_header, [])
        if not is_within(peer[0] if isinstance(peer, tuple) else "", self.networks):
            raise Unauthenticated(CHALLENGE, text="Only a trusted proxy is served.")
        if len(users) != 1 or not is_subject(users[0]):
            raise Unauthenticated(CHALLENGE, text="The proxy named nobody.")
        return Identity(
            principal=Principal(issuer=ISSUER, subject=users[0]),
            scopes=None if self.scopes_header is None else _listed(request.headers, self.scopes_header, " "),
            groups=_listed(request.headers, self.groups_header, ","),
        )


def is_within(address: str, networks: Sequence[Network]) -> bool:
    """Whether a peer's address is in one of the networks; one of IPv4 may come written as IPv6."""
    try:
        peer = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(peer, ipaddress.IPv6Address) and peer.ipv4_mapped is not None:
        peer = peer.ipv4_mapped
    return any(peer in network for network in networks)


def _listed(headers: Headers, name: str, separator: str) -> frozenset[str]:
    parts = (part.strip() for value in headers.getall(name, []) for part in value.split(separator))
    return frozenset(part for part in parts if part)
