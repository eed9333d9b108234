"""What a tasks module serves beside its tools: prompts, resources and completion, as ordinary handlers of the SDK.

They are registered on the bridge's own server, before it serves anything, so a client sees one server. Tools, tasks
and the protocol itself stay the bridge's: what is built on them (ownership, durability, sealed states) must hold
whatever a module brings along. What the server says that it can do is told from its handlers and from what is announced
(`bridge.announce`), never promised.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, TypeVar

from mcp.server.caching import CacheableMethod, CacheHint
from mcp.server.lowlevel import Server
from mcp.server.lowlevel.server import RequestHandler
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel

from bridge.capabilities import TASKS_EXTENSION
from bridge.settings import SettingsError

RegisterHandlers = Callable[[Server[Any]], object]
"""A tasks module's `register_handlers`."""

_ParamsT = TypeVar("_ParamsT", bound=BaseModel)

MODULE_METHODS: Final[Mapping[str, str | None]] = {
    "prompts/list": "prompts/get",
    "prompts/get": "prompts/list",
    "resources/list": "resources/read",
    "resources/templates/list": "resources/read",
    "resources/read": None,
    "completion/complete": None,
}
"""The methods that a tasks module may serve, and what else it has to serve then: a list of what nobody can get is a
false promise, and a method whose capability is not advertised must not exist (architecture, "Capability negotiation").
"""

_ADVERTISED: Final[Mapping[str, str]] = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "completion/complete": "completions",
}

_ANNOUNCED: Final[Mapping[str, tuple[str, str]]] = {
    "toolsListChanged": ("tools", "listChanged"),
    "promptsListChanged": ("prompts", "listChanged"),
    "resourcesListChanged": ("resources", "listChanged"),
    "resourceSubscriptions": ("resources", "subscribe"),
}
"""The members of a subscription's filter, and where it is told that they are honoured."""

CACHE_HINTS: Final[Mapping[CacheableMethod, CacheHint]] = {
    "prompts/list": CacheHint(),
    "resources/list": CacheHint(),
    "resources/templates/list": CacheHint(),
    "resources/read": CacheHint(),
}
"""For results of a tasks module that have no caching hints: good for this caller and this moment alone."""

CATALOG_TTL_MS: Final = 60_000
"""How long a client may keep what only changes when the bridge is started anew."""

CHANGING_TTL_MS: Final = 5_000
"""How long it may keep what may change any time. Who listens is told sooner, but may then ask a replica that has not
seen the change yet.
"""


def cacheable(*, changing: bool = False, private: bool = False) -> dict[str, Any]:
    """The caching hints of a result; `changing` if it may be another one any time, `private` if it is not the same for
    everybody.
    """
    return {
        "ttlMs": CHANGING_TTL_MS if changing else CATALOG_TTL_MS,
        "cacheScope": "private" if private else "public",
    }


class BridgeServer(Server[Any]):
    """The SDK's server, which can be extended once with the handlers of a tasks module, for the methods `of_module`."""

    of_module: frozenset[str] = frozenset()
    _registered: set[str] | None = None

    def extend(self, register: RegisterHandlers) -> None:
        """Let `register` add its handlers.

        Raises:
            SettingsError: One is for a method that is not the module's to serve, or needs another that is missing.
        """
        registered: set[str] = set()
        self._registered = registered
        register(self)
        self._registered = None
        for method in sorted(registered):
            if (needed := MODULE_METHODS[method]) and needed not in registered:
                raise SettingsError(f"register_handlers: {method} is of no use without {needed}")
        self.of_module = frozenset(registered)

    def add_request_handler(
        self, method: str, params_type: type[_ParamsT], handler: RequestHandler[Any, _ParamsT]
    ) -> None:
        """See the base class."""
        if self._registered is not None:
            if method not in MODULE_METHODS:
                served = ", ".join(MODULE_METHODS)
                raise SettingsError(
                    f"register_handlers: {method} is not for a tasks module to serve; it may serve {served}"
                )
            self._registered.add(method)
        super().add_request_handler(method, params_type, handler)


def capabilities(server: Server[Any], version: str, announced: Collection[str] = ()) -> dict[str, Any]:
    """The `ServerCapabilities` to tell a client of this MCP revision: what there are handlers for, and which of their
    changes are `announced`, as members of a subscription's filter.
    """
    served: dict[str, Any] = {
        name: {} for method, name in _ADVERTISED.items() if server.get_request_handler(method) is not None
    }
    if version in MODERN_PROTOCOL_VERSIONS:
        # Older revisions have no extensions, and would be told of changes on a standing stream, which there is not
        served["extensions"] = {TASKS_EXTENSION: {}}
        for kind in sorted(announced):
            feature, flag = _ANNOUNCED[kind]
            served[feature][flag] = True
    return served
