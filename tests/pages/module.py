"""The tools module of these tests: tools that ask on a page, and `crawl_site` as it is shipped."""

from __future__ import annotations

import hashlib
from typing import Final

from temporalio import activity

import activities
from activities.sealed_answers import opened
from tests.pages.tools import AskBoss, AskLeave, AskOther, AskPassword, Login
from workflows.crawl_site import CrawlSite
from workflows.kit import SealedAnswer


@activity.defn
async def pages_use(sealed: SealedAnswer) -> str:
    """Who it was, and a digest of the password: what a test may know of it."""
    login = opened(sealed, Login)
    return f"{login.who}:{hashlib.sha256(login.password.get_secret_value().encode()).hexdigest()}"


TASKS: Final = [AskPassword, AskLeave, AskBoss, AskOther, CrawlSite]
ACTIVITIES: Final = [pages_use, *activities.ACTIVITIES]
