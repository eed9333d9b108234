"""Which authenticator is in force, by the settings, with what belongs to it."""

from __future__ import annotations

import ipaddress
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp

from bridge.auth import no_authentication, static_bearer
from bridge.guesses import bounded_guesses
from bridge.identity import Authenticator
from bridge.jwks import Issuer, IssuerKeys
from bridge.oauth import OAuth
from bridge.protected_resource import ProtectedResource
from bridge.proxy_identity import TrustedProxy
from bridge.settings import PREFIX, BridgeSettings, OAuthSettings, SettingsError
from bridge.tls import client_certificate
from bridge.tokens import TokenRules


@dataclass(frozen=True, kw_only=True)
class Access:
    """How callers are known. `resource` is the endpoint as OAuth sees it, None without OAuth; `keys` are those of its
    issuers, in their order, and `session` is for requests to them.
    """

    authenticate: Authenticator
    resource: ProtectedResource | None = None
    keys: Mapping[str, IssuerKeys] = field(default_factory=dict)
    session: aiohttp.ClientSession | None = None


@asynccontextmanager
async def access(settings: BridgeSettings) -> AsyncIterator[Access]:
    """What `settings` say; connections to authorization servers are closed afterwards.

    Raises SettingsError: The static token cannot be sent.
    """
    if settings.oauth_issuers:
        async with oauth_access(settings) as oauth:
            yield oauth
    elif settings.trusted_proxies:
        yield Access(
            authenticate=TrustedProxy(
                networks=[ipaddress.ip_network(network) for network in settings.trusted_proxies],
                user_header=settings.proxy_user_header,
                groups_header=settings.proxy_groups_header,
                scopes_header=settings.proxy_scopes_header,
            )
        )
    elif settings.client_ca_file:
        yield Access(authenticate=client_certificate)
    elif settings.bearer_token:
        try:
            authenticate = bounded_guesses(static_bearer(settings.bearer_token.get_secret_value()))
        except ValueError as error:
            raise SettingsError(f"{PREFIX}BEARER_TOKEN: {error}") from None
        yield Access(authenticate=authenticate)
    else:
        yield Access(authenticate=no_authentication)


@asynccontextmanager
async def oauth_access(settings: OAuthSettings) -> AsyncIterator[Access]:
    """Access tokens of the issuers that `settings` name."""
    issuers = [Issuer(*entry.split()) for entry in settings.oauth_issuers]
    resource = ProtectedResource(settings.resource_url or "", tuple(issuer.url for issuer in issuers))
    rules = TokenRules(
        resource=resource.url,
        groups_claim=settings.oauth_groups_claim,
        clock_skew_seconds=settings.oauth_clock_skew_seconds,
    )
    async with aiohttp.ClientSession() as session:
        keys = {issuer.url: IssuerKeys(issuer, session) for issuer in issuers}
        try:
            yield Access(authenticate=OAuth(resource, keys, rules), resource=resource, keys=keys, session=session)
        finally:
            for of_issuer in keys.values():
                await of_issuer.close()
