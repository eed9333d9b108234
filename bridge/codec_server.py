"""The codec server: decrypts, and encrypts, for Temporal's web page and CLI, over Temporal's codec server protocol.

POST of protobuf JSON (`temporal.api.common.v1.Payloads`) to a path that ends in `/decode` or `/encode`; what comes
before that is no matter, so that it can be mounted anywhere. Whoever may use it reads everything, so nothing is
answered before the caller is known to be an operator, pages of other origins than the configured ones are refused, and
the log says who had how many payloads opened, never what was in them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from aiohttp import hdrs, web
from aiohttp.typedefs import Middleware
from google.protobuf import json_format
from temporalio.api.common.v1 import Payload, Payloads
from temporalio.converter import PayloadCodec

from bridge.access import oauth_access
from bridge.auth import static_bearer
from bridge.codec import EncryptionCodec, Undecryptable, key_ring
from bridge.connections import Runner
from bridge.errors import RETRY_AFTER_MS
from bridge.guesses import bounded_guesses
from bridge.http import SERVER_OPTIONS
from bridge.identity import LOCAL, Authenticator, Identity, Scope, Unauthenticated, Unavailable
from bridge.origin import host_allowed
from bridge.protected_resource import insufficient_scope
from bridge.settings import PREFIX, CodecServerSettings, SettingsError
from bridge.too_many import TooMany

log = logging.getLogger(__name__)

MAX_BODY_BYTES: Final = 16 * 1024 * 1024
"""Several of the largest payloads that Temporal stores, in base64."""

READ_SECONDS: Final = 30.0
"""How long a request may take to arrive."""

SHUTDOWN_SECONDS: Final = 5.0

_PREFLIGHT_SECONDS: Final = "600"
_ALLOWED_HEADERS: Final = "authorization,authorization-extras,content-type,x-namespace"
"""What the web page sends beside what every page may."""

OPERATOR: Final = Identity(principal=LOCAL.principal, scopes=frozenset({Scope.OPERATE}))


@dataclass(frozen=True, kw_only=True)
class CodecService:
    """What is served to whom. `any_host` is false where nothing but the address protects: only loopback names are
    answered then, whatever a page has made its own name point to.
    """

    codec: PayloadCodec
    authenticate: Authenticator
    origins: Collection[str]
    any_host: bool


@asynccontextmanager
async def running_codec_server(service: CodecService, host: str, port: int) -> AsyncIterator[str]:
    """Serve within the context, on any free port for 0; yields the URL once it listens.

    Raises:
        OSError: The address cannot be bound.
    """
    runner = Runner(codec_application(service), access_log=None, shutdown_timeout=SHUTDOWN_SECONDS, **SERVER_OPTIONS)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        yield f"http://{f'[{host}]' if ':' in host else host}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def codec_service(settings: CodecServerSettings) -> AsyncIterator[CodecService]:
    """What these settings ask for; connections to authorization servers are closed afterwards.

    Raises:
        SettingsError: The token could not be sent in a header.
    """
    async with _authenticator(settings) as authenticate:
        yield CodecService(
            codec=EncryptionCodec(key_ring(settings.encryption_keys)),
            authenticate=authenticate,
            origins=settings.codec_origins,
            any_host=settings.tells_operators,
        )


async def everybody(_request: web.Request) -> Identity:
    """The authenticator of a server that is open, on loopback, to everybody there."""
    return OPERATOR


@asynccontextmanager
async def _authenticator(settings: CodecServerSettings) -> AsyncIterator[Authenticator]:
    if settings.codec_token:
        try:
            shown = static_bearer(settings.codec_token.get_secret_value())
        except ValueError as error:
            raise SettingsError(f"{PREFIX}CODEC_TOKEN: {error}") from None
        yield _operator_with(bounded_guesses(shown))
    elif settings.oauth_issuers:
        async with oauth_access(settings) as oauth:
            yield oauth.authenticate
    else:
        yield everybody


def _operator_with(shown: Authenticator) -> Authenticator:
    async def operator(request: web.Request) -> Identity:
        await shown(request)
        return OPERATOR

    return operator


def codec_application(service: CodecService) -> web.Application:
    """The endpoints."""
    app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[_for_pages_of(service)])
    for operation, convert in (("decode", service.codec.decode), ("encode", service.codec.encode)):
        path = f"/{{mount:(?:.*/)?}}{operation}"
        app.router.add_post(path, _converting(service, operation, convert))
        app.router.add_route(hdrs.METH_OPTIONS, path, _preflight)
    app.router.add_get("/healthz", _alive)
    return app


_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def _for_pages_of(service: CodecService) -> Middleware:
    @web.middleware
    async def check(request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Who may ask by name and page; errors carry the headers as well, without which a page could not read them."""
        if not host_allowed(request.host, (), loopback=not service.any_host):
            return web.Response(status=421, text="This is not the host that was asked for\n")
        origin = request.headers.get(hdrs.ORIGIN)
        if origin is not None and origin not in service.origins:
            return web.Response(status=403, text="Pages of this origin are not served\n")
        try:
            response = await handler(request)
        except web.HTTPException as problem:
            response = web.Response(status=problem.status, text=f"{problem.reason}\n")
        response.headers[hdrs.CACHE_CONTROL] = "no-store"
        response.headers[hdrs.VARY] = hdrs.ORIGIN
        if origin is not None:
            response.headers[hdrs.ACCESS_CONTROL_ALLOW_ORIGIN] = origin
        return response

    return check


async def _preflight(_request: web.Request) -> web.Response:
    """A browser asks before it sends; it never shows credentials then."""
    return web.Response(
        status=204,
        headers={
            hdrs.ACCESS_CONTROL_ALLOW_METHODS: hdrs.METH_POST,
            hdrs.ACCESS_CONTROL_ALLOW_HEADERS: _ALLOWED_HEADERS,
            hdrs.ACCESS_CONTROL_MAX_AGE: _PREFLIGHT_SECONDS,
        },
    )


async def _alive(_request: web.Request) -> web.Response:
    return web.Response(text="ok\n")


def _converting(
    service: CodecService, operation: str, convert: Callable[[list[Payload]], Awaitable[list[Payload]]]
) -> _Handler:
    async def handle(request: web.Request) -> web.Response:
        try:
            identity = await service.authenticate(request)
        except Unauthenticated as refused:
            return web.Response(
                status=refused.status, text=f"{refused.text}\n", headers={hdrs.WWW_AUTHENTICATE: refused.challenge}
            )
        except TooMany as problem:
            retry_after = str(RETRY_AFTER_MS // 1000)
            return web.Response(
                status=problem.status, text=f"{problem.message}\n", headers={hdrs.RETRY_AFTER: retry_after}
            )
        except Unavailable as problem:
            return web.Response(status=503, text=f"{problem}\n", headers={hdrs.RETRY_AFTER: str(problem.retry_after)})
        if not identity.has(Scope.OPERATE):
            return web.Response(
                status=403,
                text=f"The scope {Scope.OPERATE} is needed\n",
                headers={hdrs.WWW_AUTHENTICATE: insufficient_scope([Scope.OPERATE])},
            )
        if request.content_type != "application/json":  # also keeps out what a page may send without asking
            raise web.HTTPUnsupportedMediaType
        try:
            async with asyncio.timeout(READ_SECONDS):
                body = await request.read()
            payloads = json_format.Parse(body, Payloads(), ignore_unknown_fields=True)
        except TimeoutError:
            raise web.HTTPRequestTimeout from None
        except (json_format.ParseError, UnicodeDecodeError, RecursionError):
            return web.Response(status=400, text="The body must be payloads as protobuf JSON\n")
        try:
            converted = await convert(list(payloads.payloads))
        except Undecryptable as problem:
            log.warning("codec.%s_failed", operation, extra={"reason": str(problem)})
            return web.Response(status=400, text=f"{problem}\n")
        log.info(
            "codec.%s",
            operation,
            extra={
                "payloads": len(converted),
                "issuer": identity.principal.issuer,
                "subject": identity.principal.subject,
                "namespace": request.headers.get("X-Namespace", "")[:200],
            },
        )
        return web.Response(
            text=json_format.MessageToJson(Payloads(payloads=converted), indent=None), content_type="application/json"
        )

    return handle
