"""The pages put together, for the way in which this bridge knows its callers."""

from __future__ import annotations

from functools import partial
from urllib.parse import urlsplit

from aiohttp import web

from bridge.access import Access
from bridge.origin import host_allowed
from bridge.pages.address import PageAddress
from bridge.pages.answer import AnswerPage
from bridge.pages.oauth import Client, OAuthSignIn
from bridge.pages.questions import Questions
from bridge.pages.sealing import Sealer
from bridge.pages.sessions import Cookies, Forms
from bridge.pages.sign_in import Ambient, SignIn, TokenForm
from bridge.service import Service
from bridge.settings import BridgeSettings


def mount_pages(
    app: web.Application, settings: BridgeSettings, service: Service, access: Access, address: PageAddress
) -> None:
    """Serve the pages, if this bridge has any."""
    if address.path is None:
        return
    names = list(settings.allowed_hosts)
    if settings.pages_url and (names or settings.on_loopback):  # none at all means any, where others can come in
        names.append(urlsplit(settings.pages_url).netloc)
    AnswerPage(
        address,
        Questions(service.reader, service.tasks),
        _sign_in(settings, service, access, address),
        Forms(service.keys),
        Sealer(settings.answer_public_key) if settings.answer_public_key else None,
        partial(host_allowed, allowed=names, loopback=settings.on_loopback),
    ).mount(app)


def _sign_in(settings: BridgeSettings, service: Service, access: Access, address: PageAddress) -> SignIn:
    base = address.path or ""
    cookies = Cookies(service.keys, secure=address.secure)
    if access.session is not None and settings.pages_client_id and settings.pages_url:
        secret = settings.pages_client_secret
        client = Client(
            id=settings.pages_client_id,
            secret=secret.get_secret_value() if secret else None,
            callback=f"{settings.pages_url}/callback",
            resource=settings.resource_url or "",
            clock_skew_seconds=settings.oauth_clock_skew_seconds,
        )
        first = next(iter(access.keys.values()))
        return OAuthSignIn(access.authenticate, first, access.session, client, cookies, base)
    if settings.bearer_token:
        return TokenForm(access.authenticate, cookies, address)
    return Ambient(access.authenticate)
