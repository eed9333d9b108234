"""One tools/call, checked: the tool exists, and its client can be served with what it declared."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from bridge.capabilities import declares_tasks, require, require_tasks
from bridge.catalog import Catalog, Tool
from bridge.exchange import Exchange

CREATION_KEY: Final = "mcp-temporal-tasks/creationKey"
"""`params._meta` key of ours: of all calls of one principal with the same value, the first creates the task."""

MAX_CREATION_KEY_CHARS: Final = 256


@dataclass(frozen=True, kw_only=True)
class Call:
    """`responses` and `state` are what a retry of core MRTR brings along; `creation_key` names the task to be.
    `takes_handle` is whether the caller is given a task rather than made to wait.
    """

    tool: Tool
    arguments: dict[str, Any]
    responses: dict[str, Any]
    state: dict[str, Any] | None
    creation_key: str | None
    takes_handle: bool
    exchange: Exchange

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """What the client declared."""
        return self.exchange.peer.capabilities

    @property
    def repeatable(self) -> bool:
        """Whether its run can be found again by a creation key: this call's or, in a retry, the first one's."""
        return self.creation_key is not None if self.state is None else bool(self.state["named"])

    def of_run(self, delivery: str) -> Call:
        """This call of a run that another call started: how that one gets its outcome was settled then, with the bounds
        of the run.

        Raises MCPError (-32021): The run is a task, and this client takes none.
        """
        takes_handle = delivery == "task"
        if takes_handle:
            require_tasks(self.capabilities if self.exchange.peer.modern else {})
        return replace(self, takes_handle=takes_handle)

    @property
    def holds_handle_at_once(self) -> bool:
        """Whether the caller is given the handle without a word of the run's, at once or after its wait budget."""
        return self.takes_handle and not self.tool.asks_before_handle

    @property
    def awaits_handle(self) -> bool:
        """Whether a handle is given only after a wait, in which this process may be killed."""
        return self.takes_handle and (self.tool.asks_before_handle or self.tool.wait_budget > timedelta(0))


def checked_call(params: Mapping[str, Any], catalog: Catalog, exchange: Exchange) -> Call:
    """The call in `params`, whose shape the kernel has checked and whose state it has unsealed.

    Raises MCPError: no such tool or a bad creation key (-32602), or the client cannot be served with what it declared
    (-32021).
    """
    tool = catalog.get(params["name"])
    if tool is None:
        raise MCPError(INVALID_PARAMS, f"Unknown tool: {params['name']}")
    peer = exchange.peer
    if tool.task == "required":
        require_tasks(peer.capabilities if peer.modern else {})
    require(tool.client_capabilities, peer.capabilities)
    state = params.get("requestState") if peer.modern else None
    return Call(
        tool=tool,
        arguments=dict(params.get("arguments") or {}),
        responses=dict(params.get("inputResponses") or {}) if peer.modern else {},
        state=None if state is None else json.loads(state),
        creation_key=_creation_key(params.get("_meta") or {}),
        takes_handle=peer.modern and declares_tasks(peer.capabilities) and tool.task != "never",
        exchange=exchange,
    )


def _creation_key(meta: Mapping[str, Any]) -> str | None:
    key = meta.get(CREATION_KEY)
    if key is None:
        return None
    if not isinstance(key, str) or not 0 < len(key) <= MAX_CREATION_KEY_CHARS:
        raise MCPError(
            INVALID_PARAMS,
            f"params._meta[{CREATION_KEY!r}] must be a string of 1 to {MAX_CREATION_KEY_CHARS} characters",
        )
    return key
