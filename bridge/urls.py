"""URLs that identities and trust hang on, compared and judged in one way."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_THIS_MACHINE: Final = frozenset({"localhost", "127.0.0.1", "::1"})


def canonical_url(url: str) -> str:
    """`url` as a resource is compared (RFC 8707): scheme and host in lower case, no default port, no slash at the end.

    Raises ValueError: It is no absolute http or https URL, or has a user, query or fragment.
    """
    parts = urlsplit(url)
    scheme, port = parts.scheme.lower(), parts.port
    if scheme not in _DEFAULT_PORTS or not parts.hostname or "@" in parts.netloc or "?" in url or "#" in url:
        raise ValueError("not the URL of a resource")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    authority = host if port in (None, _DEFAULT_PORTS[scheme]) else f"{host}:{port}"
    return f"{scheme}://{authority}{parts.path.rstrip('/')}"


def is_safe_url(url: str) -> bool:
    """Whether what comes from there can be trusted to: it goes over TLS, or does not leave this machine."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
        _ = parts.port
    except ValueError:
        return False
    return host is not None and (parts.scheme == "https" or (parts.scheme == "http" and host in _THIS_MACHINE))
