"""What a browser sends to a page: a small form, from a page of ours.

A form of another site is refused by its `Origin`, which every browser sends with a POST and no page can change; the
token inside the form is a second lock.
"""

from __future__ import annotations

import asyncio
from typing import Final
from urllib.parse import parse_qs

from aiohttp import hdrs, web

MAX_FORM_BYTES: Final = 64 * 1024
MAX_FIELDS: Final = 300
RECEIVE_SECONDS: Final = 30.0

Posted = dict[str, list[str]]


class BadForm(Exception):
    """It cannot be taken; the message says why, `status` is HTTP's."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.message = message
        self.status = status


def check_origin(request: web.Request, origin: str) -> None:
    """Raises BadForm: A page of another site sends this."""
    site = request.headers.get("Sec-Fetch-Site", "same-origin")
    if request.headers.getall(hdrs.ORIGIN, []) != [origin] or site != "same-origin":
        raise BadForm("This form comes from another site.", 403)


async def posted(request: web.Request) -> Posted:
    """The fields of a form. Raises BadForm."""
    if request.content_type != "application/x-www-form-urlencoded":
        raise BadForm("This is no form.", 415)
    body = bytearray()
    try:
        async with asyncio.timeout(RECEIVE_SECONDS):
            async for chunk in request.content.iter_any():
                body += chunk
                if len(body) > MAX_FORM_BYTES:
                    raise BadForm("The form is too large.", 413)
    except TimeoutError:
        raise BadForm("The form did not arrive in time.", 408) from None
    except web.RequestPayloadError:
        raise BadForm("The form is malformed.") from None
    try:
        return parse_qs(
            body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS, encoding="utf-8"
        )
    except ValueError:
        raise BadForm("The form is malformed.") from None


def one(form: Posted, name: str) -> str:
    """The one value of a field; empty if there is none, or several."""
    values = form.get(name, [])
    return values[0] if len(values) == 1 else ""
