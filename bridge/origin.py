"""Which Host and Origin headers are served: the defence against pages that reach a local server through a browser.

A rebinding page can point its own name at 127.0.0.1, but it cannot change the Host its browser sends, and it cannot
leave out its Origin (basic/transports/streamable-http, "Security Warning"). Loopback spellings are compared as whole
strings, so look-alikes such as `localhost.evil.example` are foreign. Pure functions; the caller has checked that there
is at most one header of each kind.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
_AUTHORITY: Final = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::[0-9]{1,5})?")
_WEB_ORIGIN: Final = re.compile(r"https?://(?P<authority>[^/?#@\s]+)")


def host_allowed(host: str, allowed: Collection[str], *, loopback: bool) -> bool:
    """Whether a request for this Host is served.

    `allowed` lists names (`mcp.example.com`, any port) and authorities (`mcp.example.com:8443`). `loopback` says that
    the listener is bound to a loopback address: only then does an empty list mean "loopback names only" rather than
    "any name".
    """
    authority = host.lower()
    match = _AUTHORITY.fullmatch(authority)
    if match is None:
        return False
    name = match["name"]
    if name in _LOOPBACK:
        return True
    if not allowed:
        return not loopback
    permitted = {entry.lower() for entry in allowed}
    return name in permitted or authority in permitted


def origin_allowed(origin: str, allowed: Collection[str]) -> bool:
    """Whether a page of this Origin may call: one on a loopback name, or one listed in full (`https://mcp.example`).

    `null` is what sandboxed and local pages send, whoever wrote them: never allowed.
    """
    origin = origin.lower()
    if origin in {entry.lower() for entry in allowed} - {"null", ""}:
        return True
    web = _WEB_ORIGIN.fullmatch(origin)
    authority = _AUTHORITY.fullmatch(web["authority"]) if web else None
    return authority is not None and authority["name"] in _LOOPBACK
