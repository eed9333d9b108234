"""A tasks module that collects spans: its prompts are the names of those that have begun."""

from __future__ import annotations

from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp_types import GetPromptRequestParams, ListPromptsResult, PaginatedRequestParams, Prompt
from opentelemetry import trace

from bridge.exchange import Exchange
from tests.extension.served import ACTIVITIES, TASKS, get_prompt

__all__ = ["ACTIVITIES", "TASKS", "register_handlers"]

BEGUN: list[str] = []


class Tracer(trace.NoOpTracer):
    """Notes names."""

    def start_as_current_span(self, name: str, *args: Any, **options: Any) -> Any:
        BEGUN.append(name)
        return super().start_as_current_span(name, *args, **options)


class Provider(trace.NoOpTracerProvider):
    """Has one tracer."""

    def get_tracer(self, *_args: Any, **_options: Any) -> trace.Tracer:
        return Tracer()


trace.set_tracer_provider(Provider())


async def list_prompts(
    _context: ServerRequestContext[Any, Exchange], _params: PaginatedRequestParams
) -> ListPromptsResult:
    return ListPromptsResult(prompts=[Prompt(name=name) for name in BEGUN], ttl_ms=0, cache_scope="private")


def register_handlers(server: Server[Any]) -> None:
    server.add_request_handler("prompts/list", PaginatedRequestParams, list_prompts)
    server.add_request_handler("prompts/get", GetPromptRequestParams, get_prompt)
