"""How a visitor of the pages is known, in the way in which callers of this bridge are.

With OAuth they sign in at the authorization server (`bridge.pages.oauth`), and with a lab's static token by typing it.
A proxy's headers, a client certificate, or being on this machine say it with each request.
"""

from __future__ import annotations

from typing import Protocol
from urllib.parse import urlsplit

from aiohttp import hdrs, web

from bridge.identity import Authenticator, Unauthenticated
from bridge.jsonrpc import Refusal
from bridge.pages.address import PageAddress
from bridge.pages.posted import BadForm, check_origin, one, posted
from bridge.pages.render import message, page, redirect
from bridge.pages.sessions import Cookies, Visitor


class SignIn(Protocol):
    """One way to know visitors. `switches` is whether they can come as somebody else."""

    switches: bool

    async def visitor(self, request: web.Request) -> Visitor | None:
        """Who this is; None if nobody is signed in. Raises Unavailable."""

    async def begin(self, request: web.Request, to: str, *, afresh: bool) -> web.Response:
        """What leads to being signed in, and then to `to`, a path of the pages; `afresh`: as somebody else, perhaps."""

    def mount(self, app: web.Application) -> None:
        """Serve what else it needs."""


class Ambient:
    """Each request says who it is."""

    switches = False

    def __init__(self, authenticate: Authenticator) -> None:
        self._authenticate = authenticate

    async def visitor(self, request: web.Request) -> Visitor | None:
        """See `SignIn`."""
        try:
            return Visitor(await self._authenticate(request))
        except Unauthenticated:
            return None

    async def begin(self, request: web.Request, to: str, *, afresh: bool) -> web.Response:
        """Nothing here can help."""
        return message("Not signed in", "Open this page where you are signed in to this server.", 401)

    def mount(self, app: web.Application) -> None:
        """Nothing."""


class TokenForm:
    """Whoever types the static token is signed in."""

    switches = False

    def __init__(self, authenticate: Authenticator, cookies: Cookies, address: PageAddress) -> None:
        """`authenticate` takes the token as any client sends it."""
        self._authenticate = authenticate
        self._cookies = cookies
        self._address = address
        self._base = address.path or ""
        self._path = f"{self._base}/sign-in"

    async def visitor(self, request: web.Request) -> Visitor | None:
        """See `SignIn`."""
        return self._cookies.visitor(request)

    async def begin(self, request: web.Request, to: str, *, afresh: bool) -> web.Response:
        """A form for the token."""
        return self._form(to)

    def mount(self, app: web.Application) -> None:
        """Take the form."""
        app.router.add_post(self._path, self._take)

    def _form(self, to: str, problem: str | None = None, status: int = 200) -> web.Response:
        return page("token", status, to=to, action=self._path, problem=problem)

    async def _take(self, request: web.Request) -> web.Response:
        try:
            check_origin(request, self._address.origin)
            form = await posted(request)
        except BadForm as bad:
            return message("That did not work", bad.message, bad.status)
        to = own_path(one(form, "to"), self._base)
        if not (token := one(form, "token").strip()).isascii() or not token.isprintable():
            return self._form(to, "This is not the token.", 401)
        try:
            # The authenticator's own rules, for a header as any client sends it
            identity = await self._authenticate(request.clone(headers={hdrs.AUTHORIZATION: f"Bearer {token}"}))
        except Unauthenticated:
            return self._form(to, "This is not the token.", 401)
        except Refusal as refusal:
            return message("That did not work", f"{refusal.message}.", refusal.status)
        response = redirect(to)
        self._cookies.sign_in(response, identity)
        return response


def own_path(to: str, base: str) -> str:
    """`to` if it is a page of ours, else the pages' own path: a form must not send people elsewhere."""
    parts = urlsplit(to)
    own = not parts.scheme and not parts.netloc and to.startswith(f"{base}/") and "\\" not in to and to.isprintable()
    return to if own else f"{base}/"
