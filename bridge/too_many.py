"""HTTP 429: what is asked for is allowed, but there is too much of it now."""

from __future__ import annotations

from bridge.errors import RETRY_AFTER_MS, TOO_MANY_REQUESTS
from bridge.jsonrpc import Refusal


class TooMany(Refusal):
    """Nothing was done; the client may try again after `RETRY_AFTER_MS`."""

    def __init__(self, message: str) -> None:
        super().__init__(TOO_MANY_REQUESTS, message, data={"retryAfterMs": RETRY_AFTER_MS}, status=TOO_MANY_REQUESTS)
