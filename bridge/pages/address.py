"""Where the pages are: what the bridge tells a task at its start.

A bridge that others reach says so itself (`MCP_TASKS_PAGES_URL`): behind a proxy it cannot know its name. One on
loopback that tells no callers apart, or has one static token, has its pages at its own address.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from bridge.settings import BridgeSettings
from workflows.kit.contract import Pages

LOCAL_PATH: Final = "/pages"


class PageAddress:
    """The address of one bridge's pages. On loopback it is known once the bridge listens."""

    def __init__(self, settings: BridgeSettings) -> None:
        callers_differ = settings.oauth_issuers or settings.trusted_proxies or settings.client_ca_file
        self._local = settings.pages_url is None and settings.on_loopback and not callers_differ
        self.secure: Final = (settings.pages_url or "").startswith("https:") or bool(
            self._local and settings.tls_cert_file
        )
        """Whether browsers come over TLS."""
        self._seals = True if settings.answer_public_key else None
        self.url: str | None = settings.pages_url
        self.path: str | None = urlsplit(settings.pages_url).path if settings.pages_url else None
        if self._local and settings.path != LOCAL_PATH:
            self.path = LOCAL_PATH

    def listening(self, origin: str) -> None:
        """The bridge listens at `origin`, e.g. `http://127.0.0.1:8000`."""
        if self._local and self.path:
            self.url = origin + self.path

    def pages(self) -> Pages | None:
        """What a task is told; None if there are none."""
        return Pages(url=self.url, seals=self._seals) if self.url else None

    @property
    def origin(self) -> str:
        """As browsers write it."""
        parts = urlsplit(self.url or "")
        return f"{parts.scheme}://{parts.netloc}"
