"""Signing in at the authorization server: authorization code with PKCE (OAuth 2.1; OpenID Connect where it is spoken).

The access token is asked for this very endpoint and judged by the rules for callers, so a visitor is whoever a client
with such a token would be, with the same groups and scopes. Code, verifier and nonce belong to the browser that began:
they are sealed in its cookie, and used once. No token is kept.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import logging
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

import aiohttp
import jwt
from aiohttp import hdrs, web

from bridge.identity import Authenticator, Identity, Scope, Unauthenticated, Unavailable
from bridge.jwks import ALGORITHMS, IssuerKeys, metadata_urls
from bridge.pages.render import message, redirect
from bridge.pages.sessions import Cookies, Visitor
from bridge.pages.sign_in import own_path
from bridge.urls import is_safe_url

log = logging.getLogger(__name__)

METADATA_SECONDS: Final = 300.0
REQUEST_SECONDS: Final = 10.0
RETRY_SECONDS: Final = 5
MAX_ANSWER_BYTES: Final = 256 * 1024
_SCOPE: Final = f"openid {Scope.ANSWER}"


class _Failed(Exception):
    """Signing in did not work; the message is for the log."""


@dataclass(frozen=True, kw_only=True)
class Client:
    """This bridge as a client of the authorization server; `callback` is where people come back to."""

    id: str
    secret: str | None
    callback: str
    resource: str
    clock_skew_seconds: int


class OAuthSignIn:
    """Visitors are signed in by one authorization server."""

    switches = True

    def __init__(
        self,
        authenticate: Authenticator,
        keys: IssuerKeys,
        session: aiohttp.ClientSession,
        client: Client,
        cookies: Cookies,
        base: str,
    ) -> None:
        """`authenticate` judges access tokens, `keys` are those of the server, `base` is the path of the pages."""
        self._authenticate = authenticate
        self._keys = keys
        self._session = session
        self._client = client
        self._cookies = cookies
        self._base = base
        self._metadata: Mapping[str, Any] | None = None
        self._ask_again_at = 0.0
        self._asking = asyncio.Lock()

    async def visitor(self, request: web.Request) -> Visitor | None:
        """See `SignIn`."""
        return self._cookies.visitor(request)

    async def begin(self, request: web.Request, to: str, *, afresh: bool) -> web.Response:
        """Send the visitor to the authorization server. Raises Unavailable."""
        metadata = await self._discovered()
        flow = {name: secrets.token_urlsafe(32) for name in ("state", "nonce", "verifier")}
        challenge = hashlib.sha256(flow["verifier"].encode()).digest()
        asked = {
            "response_type": "code",
            "client_id": self._client.id,
            "redirect_uri": self._client.callback,
            "scope": _SCOPE,
            "resource": self._client.resource,
            "state": flow["state"],
            "nonce": flow["nonce"],
            "code_challenge": base64.urlsafe_b64encode(challenge).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
            **({"prompt": "login"} if afresh else {}),
        }
        endpoint = metadata["authorization_endpoint"]
        response = redirect(f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(asked)}")
        self._cookies.begin_flow(response, {**flow, "to": to})
        return response

    def mount(self, app: web.Application) -> None:
        """Serve the way back."""
        app.router.add_get(f"{self._base}/callback", self._callback)

    async def _callback(self, request: web.Request) -> web.Response:
        flow = self._cookies.flow(request)
        to = own_path(str((flow or {}).get("to", "")), self._base)
        try:
            identity = await self._signed_in(request, flow)
        except (_Failed, Unauthenticated, aiohttp.ClientError, TimeoutError) as failure:
            log.info("page.sign_in_failed why=%.200r", failure)
            text = "You could not be signed in. Go back to where you found the link, and open it again."
            response = message("Not signed in", text, 403)
        except Unavailable:
            response = message("Try again", "The server that signs people in cannot be reached.", 503)
        else:
            response = redirect(to)
            if not self._cookies.sign_in(response, identity):
                log.warning("page.groups_cut", extra={"groups": len(identity.groups)})
        self._cookies.end_flow(response)
        return response

    async def _signed_in(self, request: web.Request, flow: Mapping[str, Any] | None) -> Identity:
        """Whom the authorization server sent back. Raises _Failed, Unauthenticated, Unavailable."""
        query = request.query
        if flow is None or not secrets.compare_digest(query.get("state", "").encode(), flow["state"].encode()):
            raise _Failed("it was not this browser that began, or too long ago")
        metadata = await self._discovered()
        issuer = query.get("iss")  # RFC 9207: against an answer of another server
        if issuer != self._keys.issuer.url and (
            issuer is not None or metadata.get("authorization_response_iss_parameter_supported")
        ):
            raise _Failed("the answer is of another issuer")
        if "code" not in query:
            raise _Failed(f"the server said {query.get('error', 'nothing')[:100]!r}")
        tokens = await self._tokens(metadata, query["code"], flow["verifier"])
        access = tokens.get("access_token")
        if not isinstance(access, str) or not access.isascii() or not access.isprintable():
            raise _Failed("there is no access token")
        identity = await self._authenticate(request.clone(headers={hdrs.AUTHORIZATION: f"Bearer {access}"}))
        if identity.principal.issuer != self._keys.issuer.url:
            raise _Failed("the access token is of another issuer")
        if (id_token := tokens.get("id_token")) is not None:
            await self._check_id_token(id_token, flow["nonce"], identity.principal.subject)
        return identity

    async def _tokens(self, metadata: Mapping[str, Any], code: str, verifier: str) -> dict[str, Any]:
        client = self._client
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": client.callback,
            "code_verifier": verifier,
            "client_id": client.id,
            "resource": client.resource,
        }
        methods = metadata.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        auth = None
        if client.secret is not None and "client_secret_post" in methods:
            form["client_secret"] = client.secret
        elif client.secret is not None:
            auth = aiohttp.BasicAuth(client.id, client.secret, "utf-8")
            del form["client_id"]
        answering = self._session.post(
            metadata["token_endpoint"], data=form, auth=auth, allow_redirects=False, timeout=_TIMEOUT
        )
        async with answering as response:
            if response.status != 200:
                raise _Failed(f"the token endpoint answers {response.status}")
            return await _json_object(response)

    async def _check_id_token(self, token: Any, nonce: str, subject: str) -> None:
        """OpenID Connect Core, section 3.1.3.7. Raises _Failed, Unavailable."""
        try:
            header = jwt.get_unverified_header(token)
            algorithm = header.get("alg", "")
            if algorithm not in ALGORITHMS:
                raise _Failed("the ID token is signed in a way that is not accepted")
            key = await self._keys.key(header.get("kid"), algorithm)
            if key is None:
                raise _Failed("the ID token's key is not known")
            claims = jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                audience=self._client.id,
                issuer=self._keys.issuer.url,
                leeway=self._client.clock_skew_seconds,
                options={"require": ["exp", "iat", "iss", "sub", "aud", "nonce"]},
            )
        except jwt.PyJWTError as error:
            raise _Failed(f"the ID token is not valid: {type(error).__name__}") from None
        same = isinstance(claims["nonce"], str) and secrets.compare_digest(claims["nonce"].encode(), nonce.encode())
        if not same or claims["sub"] != subject or claims.get("azp", self._client.id) != self._client.id:
            raise _Failed("the ID token is for another sign-in")

    async def _discovered(self) -> Mapping[str, Any]:
        """The server's metadata: asked for once for all who wait for it, and not again soon after a failure, because
        whoever opens a page, known or not, would make the bridge ask. Raises Unavailable.
        """
        async with self._asking:
            if time.monotonic() >= self._ask_again_at:
                found = await self._published()
                self._metadata = found or self._metadata
                self._ask_again_at = time.monotonic() + (METADATA_SECONDS if found else RETRY_SECONDS)
        if self._metadata is None:
            raise Unavailable(RETRY_SECONDS)
        return self._metadata

    async def _published(self) -> Mapping[str, Any] | None:
        """The metadata as the server shows it now; None, and a line in the log, if it does not."""
        issuer = self._keys.issuer.url
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                for url in metadata_urls(issuer):
                    async with self._session.get(url, allow_redirects=False, timeout=_TIMEOUT) as response:
                        if response.status == 200:
                            return _usable(await _json_object(response), issuer)
            failure: Exception | None = None
        except (_Failed, aiohttp.ClientError, TimeoutError) as problem:
            failure = problem
        log.warning("page.no_metadata issuer=%s why=%.200r", issuer, failure)
        return None


_TIMEOUT: Final = aiohttp.ClientTimeout(total=REQUEST_SECONDS)


def _usable(metadata: Mapping[str, Any], issuer: str) -> Mapping[str, Any]:
    if metadata.get("issuer") != issuer:
        raise _Failed("the metadata is of another issuer")
    for name in ("authorization_endpoint", "token_endpoint"):
        if not isinstance(metadata.get(name), str) or not is_safe_url(metadata[name]):
            raise _Failed(f"the metadata has no usable {name}")
    return metadata


async def _json_object(response: aiohttp.ClientResponse) -> dict[str, Any]:
    body = await response.content.read(MAX_ANSWER_BYTES + 1)
    while len(body) <= MAX_ANSWER_BYTES and (more := await response.content.read(MAX_ANSWER_BYTES)):
        body += more
    try:
        document = json.loads(body) if len(body) <= MAX_ANSWER_BYTES else None
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise _Failed("the server's answer is no JSON object")
    return document
