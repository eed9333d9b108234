"""The bridge over HTTP: settings in, a listening endpoint out, everything closed again in the opposite order."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web

from bridge.auth import Authenticator, no_authentication, static_bearer
from bridge.errors import BridgeError
from bridge.gateway import Gateway
from bridge.http import SERVER_OPTIONS, HttpSettings, mount_mcp
from bridge.service import Service, running_service
from bridge.settings import BridgeSettings, SettingsError

SHUTDOWN_SECONDS: Final = 5.0
"""How long open connections may take to close; running requests are ended by the endpoint before."""

GATEWAY: Final = web.AppKey("gateway", Gateway)


@asynccontextmanager
async def running_bridge(settings: BridgeSettings) -> AsyncIterator[str]:
    """Serve MCP with these settings; yields the endpoint's URL once it listens.

    Raises:
        SettingsError: The tasks module, the catalog file or Temporal's settings cannot be used.
        OSError: The address cannot be bound.
    """
    async with running_service(settings) as service:
        runner = web.AppRunner(
            _application(service, settings), access_log=None, shutdown_timeout=SHUTDOWN_SECONDS, **SERVER_OPTIONS
        )
        await runner.setup()
        try:
            site = web.TCPSite(runner, settings.host, settings.port)
            await site.start()
            port = runner.addresses[0][1]
            host = f"[{settings.host}]" if ":" in settings.host else settings.host
            yield f"http://{host}:{port}{settings.path}"
        finally:
            await runner.cleanup()


def _application(service: Service, settings: BridgeSettings) -> web.Application:
    app = web.Application()
    app[GATEWAY] = service.gateway
    mount_mcp(app, service.server, service.older, _http_settings(settings), _authenticator(settings))
    app.router.add_get("/healthz", _alive)
    app.router.add_get("/readyz", _ready)
    return app


async def _alive(_request: web.Request) -> web.Response:
    """Liveness: this process answers."""
    return web.Response(text="ok\n")


async def _ready(request: web.Request) -> web.Response:
    """Readiness: Temporal answers for our namespace."""
    try:
        await request.app[GATEWAY].check()
    except BridgeError:
        return web.Response(status=503, text="Temporal cannot be reached\n")
    return web.Response(text="ok\n")


def _http_settings(settings: BridgeSettings) -> HttpSettings:
    return HttpSettings(
        path=settings.path,
        max_body_bytes=settings.max_body_bytes,
        loopback=settings.on_loopback,
        allowed_hosts=settings.allowed_hosts,
        allowed_origins=settings.allowed_origins,
        task_name_required=settings.task_name_required,
    )


def _authenticator(settings: BridgeSettings) -> Authenticator:
    if settings.bearer_token is None:
        return no_authentication
    try:
        return static_bearer(settings.bearer_token.get_secret_value())
    except ValueError as error:
        raise SettingsError(f"MCP_TASKS_BEARER_TOKEN: {error}") from None
