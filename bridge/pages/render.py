"""HTML out of templates, with the headers that keep it to itself.

Templates escape everything. The style is in the page, allowed by its hash: nothing else is loaded, nothing runs.
"""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from typing import Any, Final

from aiohttp import hdrs, web
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

_STYLE: Final = files("bridge.pages").joinpath("templates/style.css").read_text("utf-8")
_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()

HEADERS: Final = {
    hdrs.CACHE_CONTROL: "no-store",
    "Content-Security-Policy": (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # not `no-referrer`: browsers would send `Origin: null` with our own forms
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""Of every answer of the pages."""

_TEMPLATES: Final = Environment(
    loader=PackageLoader("bridge.pages"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.globals["style"] = Markup(_STYLE)  # noqa: S704 - a file of ours


def page(template: str, status: int = 200, **context: Any) -> web.Response:
    """A page."""
    text = _TEMPLATES.get_template(f"{template}.html").render(**context)
    return web.Response(text=text, status=status, content_type="text/html", charset="utf-8", headers=HEADERS)


def message(title: str, text: str, status: int, *, link: tuple[str, str] | None = None) -> web.Response:
    """A page that only says something; `link` is an address and what it is called."""
    return page("message", status, title=title, text=text, link=link)


def redirect(url: str) -> web.Response:
    """To another page, which is asked for with GET."""
    return web.Response(status=303, headers={**HEADERS, hdrs.LOCATION: url})
