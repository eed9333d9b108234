"""What a crawl takes from an HTML page: its title and the links that stay on its site. Pure, and bounded."""

from __future__ import annotations

from dataclasses import dataclass
from html.parser import HTMLParser

from yarl import URL

from workflows.crawl_site import MAX_LINKS, MAX_TITLE, MAX_URL

from .secret_store import origin
from .web import parse_url


@dataclass(frozen=True)
class HtmlPage:
    """A page's title, if it has one, and its links in canonical form, each once, in order."""

    title: str | None
    links: list[str]


def read_page(text: str, url: URL) -> HtmlPage:
    """Read a page found at `url`. Links to other sites, and overlong ones, are left out."""
    parser = _Parser()
    parser.feed(text)
    parser.close()
    base = _joined(url, parser.base) or url
    links: dict[str, None] = {}
    for href in parser.links:
        link = _joined(base, href)
        if link is not None and origin(link) == origin(url) and len(str(link)) <= MAX_URL:
            links[str(link)] = None
        if len(links) == MAX_LINKS:
            break
    title = " ".join("".join(parser.title).split())
    return HtmlPage(title=title[:MAX_TITLE] or None, links=list(links))


def _joined(base: URL, href: str | None) -> URL | None:
    if not href:
        return None
    try:
        return parse_url(str(base.join(URL(href.strip()))))
    except ValueError:
        return None


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.base: str | None = None
        self.title: list[str] = []
        self.links: list[str] = []
        self._in_title = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        href = dict(attrs).get("href")
        if tag == "title":
            self._in_title = not self.title  # the first one; an SVG may have its own
        elif tag == "base" and self.base is None:
            self.base = href
        elif tag in {"a", "area"} and href:
            self.links.append(href)

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title.append(data)
