"""What a crawl takes from an HTML page: its title and the links that stay on its site.

Pages are hostile, so they are scanned by patterns that never go back (`*+`), each of which goes on where the one
before ended: the time is linear in the size, and nothing is an error. What has no end (a comment, a script, a quoted
value) reaches to the end of the page, as in browsers.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import unescape
from typing import Final

from yarl import URL

from workflows.crawl_site import MAX_LINKS, MAX_TITLE, MAX_URL

from .secret_store import origin
from .web import joined

MAX_CANDIDATES: Final = 50 * MAX_LINKS
"""Different addresses of one page that are looked at; resolving one takes far longer than finding it."""

MAX_RAW: Final = 4_000
"""Characters of a title or an address as written; what is longer is cut off or left out."""

_SPACE: Final = r"[ \t\n\f\r]"
_TAG: Final = re.compile(r"<(?:(!--)|([!?])|(/?[A-Za-z][^ \t\n\f\r/>]*+))")
_ATTRIBUTE: Final = re.compile(
    rf"""[ \t\n\f\r/]*+([^ \t\n\f\r/>][^ \t\n\f\r/>=]*+)"""
    rf"""(?:{_SPACE}*+={_SPACE}*+(?:"([^"]*+)"?|'([^']*+)'?|([^ \t\n\f\r>]*+)))?+"""
)
_TAG_END: Final = re.compile(r"[ \t\n\f\r/]*+(>?)")
_COMMENT_END: Final = re.compile(r"--!?>")
_RAW_ENDS: Final = {
    name: re.compile(rf"</{name}[ \t\n\f\r/>]", re.IGNORECASE)
    for name in ("title", "script", "style", "textarea", "iframe", "noembed", "noframes", "xmp")
}
"""Elements whose content is not markup, and where each ends."""

_NO_CHARSETS: Final = frozenset({"idna", "punycode", "undefined", "unicode-escape", "raw-unicode-escape"})
"""Python's text codecs that no page is written in; some raise on any page, one takes time quadratic in its size."""


@dataclass(frozen=True)
class HtmlPage:
    """A page's title, if it has one, and its links in canonical form, each once, in order."""

    title: str | None
    links: list[str]


def decoded(body: bytes, parameters: str) -> str:
    """The text of a page, by the `parameters` of its Content-Type, or as UTF-8 if they name nothing usable."""
    _, _, charset = parameters.partition("charset=")
    try:
        codec = codecs.lookup(charset.partition(";")[0].strip().strip("\"'") or "utf-8").name
        return body.decode("utf-8" if codec in _NO_CHARSETS else codec, "replace")
    except (LookupError, ValueError):
        return body.decode("utf-8", "replace")


def read_page(text: str, url: URL) -> HtmlPage:
    """Read a page found at `url`. Links to other sites, and overlong ones, are left out."""
    found = _scan(text)
    base = _joined(url, found.base) or url
    links: dict[str, None] = {}
    for href in found.hrefs:
        link = _joined(base, href)
        if link is not None and origin(link) == origin(url) and len(str(link)) <= MAX_URL:
            links[str(link)] = None
        if len(links) == MAX_LINKS:
            break
    title = " ".join(unescape(found.title or "").split())
    return HtmlPage(title=title[:MAX_TITLE] or None, links=list(links))


def _joined(base: URL, href: str | None) -> URL | None:
    if not href or len(href) > MAX_RAW:
        return None
    return joined(base, unescape(href))


@dataclass
class _Found:
    """What a page holds, as written; `hrefs` are different ones, in order."""

    title: str | None = None
    base: str | None = None
    hrefs: dict[str, None] = field(default_factory=dict)


def _scan(text: str) -> _Found:
    found = _Found()
    for name, href, end in _start_tags(text):
        if name == "title" and found.title is None:  # the first one; an SVG may have its own
            found.title = _title(text, end)
        elif name == "base" and found.base is None:
            found.base = href
        elif name in {"a", "area"} and href and len(found.hrefs) < MAX_CANDIDATES:
            found.hrefs[href] = None
    return found


def _title(text: str, start: int) -> str:
    """A title's text as written: what looks like markup in it is text."""
    end = _RAW_ENDS["title"].search(text, start)
    return text[start : end.start() if end else len(text)][:MAX_RAW]


def _start_tags(text: str) -> Iterator[tuple[str, str | None, int]]:
    """Every start tag that is not in a comment or raw text: its name, its `href`, and where it ends."""
    position = 0
    while tag := _TAG.search(text, position):
        comment, declaration, name = tag.groups()
        if comment:
            position = _after(_COMMENT_END, text, tag.end() - 2)  # `<!-->` is a whole comment
        elif declaration:
            position = text.find(">", tag.end()) + 1 or len(text)
        else:
            href, position, closed = _attributes(text, tag.end())
            if closed and not name.startswith("/"):
                yield name.lower(), href, position
                if name.lower() in _RAW_ENDS and text[position - 2] != "/":
                    position = _after(_RAW_ENDS[name.lower()], text, position)


def _attributes(text: str, position: int) -> tuple[str | None, int, bool]:
    """Read a tag's attributes: the value of the first `href`, where the tag ends, and whether it does."""
    href: str | None = None
    while attribute := _ATTRIBUTE.match(text, position):
        position = attribute.end()
        if href is None and attribute[1].lower() == "href":
            href = attribute[2] or attribute[3] or attribute[4] or ""
    end = _TAG_END.match(text, position)
    assert end is not None  # noqa: S101 - it matches the empty text
    return href, end.end(), bool(end[1])


def _after(pattern: re.Pattern[str], text: str, position: int) -> int:
    """Where the next match ends, or the text."""
    match = pattern.search(text, position)
    return match.end() if match else len(text)
