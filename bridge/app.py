"""The bridge over HTTP: settings in, a listening endpoint out, everything closed again in the opposite order."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web

from bridge.access import Access, access
from bridge.connections import Runner, Site
from bridge.http import SERVER_OPTIONS, HttpSettings, mount_mcp
from bridge.pages.address import PageAddress
from bridge.pages.mount import mount_pages
from bridge.ready import Readiness
from bridge.service import Service, running_service
from bridge.settings import BridgeSettings
from bridge.tls import server_context

SHUTDOWN_SECONDS: Final = 5.0
"""How long open connections may take to close; running requests are ended by the endpoint before."""


@asynccontextmanager
async def running_bridge(settings: BridgeSettings) -> AsyncIterator[str]:
    """Serve MCP with these settings; yields the endpoint's URL once it listens.

    Raises:
        SettingsError: The tasks module, the catalog file, TLS or Temporal's settings cannot be used.
        OSError: The address cannot be bound.
    """
    tls = None
    if settings.tls_cert_file and settings.tls_key_file:
        tls = server_context(settings.tls_cert_file, settings.tls_key_file, settings.client_ca_file)
    pages = PageAddress(settings)
    async with running_service(settings, pages.pages) as service, access(settings) as known:
        app = _application(service, settings, known)
        mount_pages(app, settings, service, known, pages)
        runner = Runner(app, access_log=None, shutdown_timeout=SHUTDOWN_SECONDS, **SERVER_OPTIONS)
        await runner.setup()
        try:
            site = Site(runner, settings.host, settings.port, ssl_context=tls)
            await site.start()
            port = runner.addresses[0][1]
            host = f"[{settings.host}]" if ":" in settings.host else settings.host
            origin = f"{'https' if tls else 'http'}://{host}:{port}"
            pages.listening(origin)
            yield origin + settings.path
        finally:
            await runner.cleanup()


def _application(service: Service, settings: BridgeSettings, known: Access) -> web.Application:
    app = web.Application()
    mount_mcp(
        app,
        service.server,
        service.older,
        _http_settings(settings),
        known.authenticate,
        tool_scopes=service.tool_scopes,
        resource_metadata=known.resource.metadata_url if known.resource else None,
    )
    if known.resource:
        known.resource.mount(app)
    app.router.add_get("/healthz", _alive)
    app.router.add_get("/readyz", Readiness(service.gateway.check).answer)
    return app


async def _alive(_request: web.Request) -> web.Response:
    """Liveness: this process answers."""
    return web.Response(text="ok\n")


def _http_settings(settings: BridgeSettings) -> HttpSettings:
    return HttpSettings(
        path=settings.path,
        max_body_bytes=settings.max_body_bytes,
        loopback=settings.on_loopback,
        allowed_hosts=settings.allowed_hosts,
        allowed_origins=settings.allowed_origins,
        task_name_required=settings.task_name_required,
        requests_per_second=settings.requests_per_second,
        request_burst=settings.request_burst,
    )
