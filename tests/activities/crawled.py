"""Small sites to crawl, and visits of them."""

from __future__ import annotations

from typing import Any

from aiohttp import web
from temporalio.testing import ActivityEnvironment
from yarl import URL

from activities.crawl_site import visit_pages
from tests.activities.conftest import Handler
from workflows.crawl_site import Batch, Visit


def page(body: str, **options: Any) -> web.Response:
    return web.Response(text=body, content_type="text/html", **options)


def site(pages: dict[str, web.Response | str], seen: list[web.Request] | None = None) -> Handler:
    """Answers by path; 404 for the rest."""

    async def answer(request: web.Request) -> web.StreamResponse:
        if seen is not None:
            seen.append(request)
        found = pages.get(request.path)
        if found is None:
            return web.Response(status=404)
        if isinstance(found, str):
            return page(found)
        return web.Response(status=found.status, headers=found.headers, body=found.body)

    return answer


def batch(base: str, *paths: str, **changes: Any) -> Batch:
    urls = [str(URL(base).join(URL(path))) for path in paths or ("/",)]
    fields = {"max_page_bytes": 10_000, "delay_ms": 0, "credential": None, "done": 0, "total": 10, **changes}
    return Batch(urls=urls, **fields)


async def visit(env: ActivityEnvironment, request: Batch) -> Visit:
    (found,) = (await env.run(visit_pages, request)).visits
    return found
