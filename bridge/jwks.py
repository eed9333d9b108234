"""The public keys of one authorization server, as many requests need them and the server seldom changes them.

Keys are looked up in memory. They are fetched again, by one request for all who wait, when a key id is not known, and
beside the requests when they are older than `RENEW_SECONDS`; never twice within `refresh_seconds`. Past
`MAX_AGE_SECONDS`, as after a pause in which nobody asked, requests wait for them. What was fetched last stays good
while the server cannot be reached: an outage of it is none of ours, until the bridge knows no keys at all or is shown a
new key id. A new set of keys replaces the old one as a whole, so a key that was withdrawn is gone.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
from jwt import PyJWK
from jwt.exceptions import PyJWTError

from bridge.identity import Unavailable
from bridge.urls import is_safe_url

log = logging.getLogger(__name__)

ALGORITHMS: Final[Mapping[str, tuple[str, str | None]]] = {
    "RS256": ("RSA", None),
    "PS256": ("RSA", None),
    "ES256": ("EC", "P-256"),
    "EdDSA": ("OKP", "Ed25519"),
}
"""The algorithms of signatures, with the type and curve of their keys. Only asymmetric ones: what verifies a token must
not be able to make one."""

RENEW_SECONDS: Final = 240.0
"""After that keys are fetched again, beside the requests."""

MAX_AGE_SECONDS: Final = 300.0
"""Older keys, which may be withdrawn, are used only when the server has just failed to give newer ones."""

REFRESH_SECONDS: Final = 5.0
"""Between two fetches: whoever invents key ids must not be able to make the bridge a load for others."""

FETCH_SECONDS: Final = 5.0
"""For one fetch with all its requests."""

MAX_WAITING: Final = 100
"""Requests that may wait for the next fetch to know their key id; beyond it those with an unknown one are told at once
to come back."""

MAX_DOCUMENT_BYTES: Final = 512 * 1024
MAX_KEYS: Final = 100


class _Unusable(Exception):
    """The authorization server gave what cannot be used; the message says what, for the log."""


@dataclass(frozen=True, slots=True)
class Issuer:
    """An authorization server: its identifier, and where its keys are, if that is not told by its metadata."""

    url: str
    keys_url: str | None = None


class IssuerKeys:
    """The keys of one issuer. `session` fetches them; it is closed by whoever made it."""

    def __init__(
        self, issuer: Issuer, session: aiohttp.ClientSession, *, refresh_seconds: float = REFRESH_SECONDS
    ) -> None:
        self.issuer: Final = issuer
        self._session = session
        self._refresh_seconds = refresh_seconds
        self._keys: Sequence[Mapping[str, Any]] | None = None
        self._prepared = dict[tuple[str | None, str], PyJWK | None]()
        self._fetching: asyncio.Task[None] | None = None
        self._tried_at: float | None = None
        self._fetched_at = 0.0
        self._failed = False
        self._waiting = 0

    async def key(self, key_id: str | None, algorithm: str) -> PyJWK | None:
        """The key that a token with this header is verified with; None if there is none.

        Raises Unavailable: No key of this id is known, and the server cannot be reached, or too many wait for it.
        """
        arrived = _now()
        age = arrived - self._fetched_at
        if self._keys is None:
            await self._fetch(arrived if self._fetching is None else -math.inf)
        elif age > MAX_AGE_SECONDS and not self._failed:
            await asyncio.shield(self._begin())
        elif age > RENEW_SECONDS and self._pause() <= 0:
            _ = self._begin()
        if (found := self._known(key_id, algorithm)) is None:
            await self._fetch(arrived)
            found = self._known(key_id, algorithm)
        if found is None and (self._keys is None or self._failed):
            raise Unavailable(self._retry_after)
        return found

    @property
    def _retry_after(self) -> int:
        return max(1, round(self._refresh_seconds))

    async def close(self) -> None:
        """Stop fetching."""
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.gather(self._fetching, return_exceptions=True)

    def _known(self, key_id: str | None, algorithm: str) -> PyJWK | None:
        name = (key_id, algorithm)
        if name not in self._prepared:
            found = prepared_key(self._keys or (), key_id, algorithm)
            if found is None:
                return None  # not remembered: key ids can be invented without end
            self._prepared[name] = found
        return self._prepared[name]

    async def _fetch(self, since: float) -> None:
        """Have the keys as they were asked for at `since` or later, or a failure noted.

        After a success the next fetch waits for its turn, so that a key that the server has just begun to use is found
        for its first token; after a failure it does not, and whoever needs it is told to come back.
        """
        while self._fetching is not None or self._tried_at is None or self._tried_at < since:
            if self._fetching is None and (pause := self._pause()) > 0:
                if self._failed:
                    return
                if self._waiting >= MAX_WAITING:  # nobody has looked for it, so it may well be good
                    raise Unavailable(self._retry_after)
                self._waiting += 1
                try:
                    await asyncio.sleep(pause)
                finally:
                    self._waiting -= 1
                continue
            await asyncio.shield(self._begin())
            if self._failed:
                return

    def _pause(self) -> float:
        """Seconds until keys may be fetched again."""
        return 0.0 if self._tried_at is None else self._tried_at + self._refresh_seconds - _now()

    def _begin(self) -> asyncio.Future[None]:
        if self._fetching is None:
            self._tried_at = _now()
            self._fetching = asyncio.create_task(self._load(), name="jwks")
            self._fetching.add_done_callback(self._ended)
        return self._fetching

    def _ended(self, _task: asyncio.Task[None]) -> None:
        self._fetching = None

    async def _load(self) -> None:
        try:
            async with asyncio.timeout(FETCH_SECONDS):
                keys = await self._published()
        except (aiohttp.ClientError, TimeoutError, OSError, _Unusable) as problem:
            self._failed = True
            log.warning("jwks.unavailable issuer=%s why=%.200r known=%s", self.issuer.url, problem, bool(self._keys))
            return
        self._keys = keys
        self._prepared = {}
        self._fetched_at = _now()
        self._failed = False

    async def _published(self) -> list[dict[str, Any]]:
        """The keys as the server shows them now."""
        keys_url = self.issuer.keys_url or await self._discover()
        keys = (await self._document(keys_url)).get("keys")
        if not isinstance(keys, list):
            raise _Unusable(f"{keys_url} has no list of keys")
        return [key for key in keys[:MAX_KEYS] if isinstance(key, dict)]

    async def _discover(self) -> str:
        """Where the keys are, by the server's metadata (RFC 8414, section 3; OpenID Connect Discovery, section 4)."""
        problem: Exception = _Unusable("no metadata")
        for url in metadata_urls(self.issuer.url):
            try:
                metadata = await self._document(url)
            except (aiohttp.ClientError, _Unusable) as failure:
                problem = failure
                continue
            if metadata.get("issuer") != self.issuer.url:
                raise _Unusable(f"{url} is the metadata of another issuer")
            keys_url = metadata.get("jwks_uri")
            if not isinstance(keys_url, str) or not is_safe_url(keys_url):
                raise _Unusable(f"{url} has no usable jwks_uri")
            return keys_url
        raise problem

    async def _document(self, url: str) -> dict[str, Any]:
        async with self._session.get(
            url, allow_redirects=False, headers={"Accept": "application/json"}, timeout=_UNTIMED
        ) as response:
            if response.status != 200:
                raise _Unusable(f"{url} answers {response.status}")
            body = bytearray()
            async for chunk in response.content.iter_any():
                body += chunk
                if len(body) > MAX_DOCUMENT_BYTES:
                    raise _Unusable(f"{url} is too large")
        try:
            document = json.loads(body)
        except (ValueError, RecursionError):
            raise _Unusable(f"{url} is not JSON") from None
        if not isinstance(document, dict):
            raise _Unusable(f"{url} is not a JSON object")
        return document


_UNTIMED: Final = aiohttp.ClientTimeout(total=None)  # `FETCH_SECONDS` bounds all


def metadata_urls(issuer: str) -> list[str]:
    """Where the metadata of `issuer` may be, in the order in which to look."""
    parts = urlsplit(issuer)
    origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    inserted = [f"{origin}/.well-known/{name}{path}" for name in ("oauth-authorization-server", "openid-configuration")]
    return list(dict.fromkeys((*inserted, f"{origin}{path}/.well-known/openid-configuration")))


def prepared_key(keys: Sequence[Mapping[str, Any]], key_id: str | None, algorithm: str) -> PyJWK | None:
    """The one key that fits. Without a key id, and with one that is there twice, it has to be the only one."""
    fitting = [key for key in keys if (key_id is None or key.get("kid") == key_id) and _fits(key, algorithm)]
    if len(fitting) != 1:
        return None
    try:
        return PyJWK(dict(fitting[0]), algorithm)
    except (PyJWTError, ValueError, TypeError, KeyError):
        log.warning("jwks.unusable_key kid=%.80r", key_id)
        return None


def _fits(key: Mapping[str, Any], algorithm: str) -> bool:
    kind, curve = ALGORITHMS[algorithm]
    operations = key.get("key_ops")
    return (
        key.get("kty") == kind
        and (curve is None or key.get("crv") == curve)
        and key.get("alg") in (None, algorithm)
        and key.get("use") in (None, "sig")
        and (operations is None or (isinstance(operations, list) and "verify" in operations))
    )


def _now() -> float:
    return asyncio.get_running_loop().time()
