"""What a client learns about how to get in: the metadata of RFC 9728, and the challenges that lead to it.

Metadata is for everybody, pages of any origin included: whoever has no token yet looks there first. It is served at the
path that belongs to the resource's URL and at the root, and every challenge names it, so that a client finds it by any
of the three ways that the specification knows (basic/authorization, "Protected Resource Metadata Discovery").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final
from urllib.parse import urlsplit

from aiohttp import hdrs, web

from bridge.identity import Scope

WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"

BASIC_SCOPES: Final = (Scope.CALL, Scope.READ, Scope.ANSWER)
"""What an ordinary client needs. Operating, and what single tools ask for, is named where it is missing."""

METADATA_SECONDS: Final = 300
"""How long a cache may keep the metadata."""


def challenge(**parameters: str | None) -> str:
    """The value of a WWW-Authenticate header, of the parameters that are not None. Their values have no quotes."""
    return "Bearer " + ", ".join(f'{name}="{value}"' for name, value in parameters.items() if value is not None)


def insufficient_scope(scopes: Iterable[str], resource_metadata: str | None = None) -> str:
    """The challenge of a 403: `scopes` are all that the operation needs, those that were granted included."""
    return challenge(error="insufficient_scope", scope=" ".join(scopes), resource_metadata=resource_metadata)


@dataclass(frozen=True)
class ProtectedResource:
    """The MCP endpoint as OAuth sees it: its canonical URL, and the issuers whose tokens it takes."""

    url: str
    issuers: tuple[str, ...]

    @cached_property
    def metadata_url(self) -> str:
        """Where its metadata is."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}{WELL_KNOWN}{parts.path}"

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Its metadata (RFC 9728, section 2)."""
        return {
            "resource": self.url,
            "authorization_servers": list(self.issuers),
            "scopes_supported": list(BASIC_SCOPES),
            "bearer_methods_supported": ["header"],
        }

    def challenge(self, error: str | None = None, description: str | None = None) -> str:
        """The challenge to whoever showed no token, or one that is of no use."""
        return challenge(
            error=error,
            error_description=description,
            resource_metadata=self.metadata_url,
            scope=" ".join(BASIC_SCOPES),
        )

    def mount(self, app: web.Application) -> None:
        """Serve the metadata."""
        for path in dict.fromkeys((WELL_KNOWN, urlsplit(self.metadata_url).path)):
            app.router.add_get(path, self._metadata)
            app.router.add_options(path, self._preflight)

    async def _metadata(self, _request: web.Request) -> web.Response:
        headers = {hdrs.ACCESS_CONTROL_ALLOW_ORIGIN: "*", hdrs.CACHE_CONTROL: f"public, max-age={METADATA_SECONDS}"}
        return web.json_response(self.metadata, headers=headers)

    async def _preflight(self, _request: web.Request) -> web.Response:
        """Clients send `MCP-Protocol-Version` along, which a browser asks about first."""
        return web.Response(
            status=204,
            headers={
                hdrs.ACCESS_CONTROL_ALLOW_ORIGIN: "*",
                hdrs.ACCESS_CONTROL_ALLOW_METHODS: "GET",
                hdrs.ACCESS_CONTROL_ALLOW_HEADERS: "MCP-Protocol-Version, Content-Type",
            },
        )
