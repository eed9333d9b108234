"""Whether the namespace has our search attributes.

Starting a workflow with an attribute that is not registered fails, and a workflow that upserts one fails its workflow
task for ever, so a run gets all three or none. They only feed lists; a cluster without them, or one that does not
say, still serves tasks.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import Final

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from workflows.kit.contract import SEARCH_ATTRIBUTES

logger = logging.getLogger(__name__)

RECHECK_SECONDS: Final = 60.0
RETRY_SECONDS: Final = 5.0
"""After a check that got no answer."""

_TIMEOUT: Final = timedelta(seconds=1)


class SearchAttributes:
    """Asks once, and while they are missing once a minute."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._available = False
        self._ask_at = 0.0
        self._asking = asyncio.Lock()

    async def available(self) -> bool:
        """Whether all of them can be set now. Never raises."""
        clock = asyncio.get_running_loop().time
        async with self._asking:
            if not self._available and clock() >= self._ask_at:
                registered = await self._registered()
                self._available = registered is True
                self._ask_at = clock() + (RETRY_SECONDS if registered is None else RECHECK_SECONDS)
                if registered is False:
                    logger.warning("search_attributes.missing", extra={"needed": list(SEARCH_ATTRIBUTES)})
        return self._available

    def refused(self, error: RPCError) -> bool:
        """Whether `error` says that an attribute is not registered (any more); if so they are not used until the next
        check."""
        if error.status is not RPCStatusCode.INVALID_ARGUMENT or "search attribute" not in error.message.lower():
            return False
        self._available = False
        return True

    async def _registered(self) -> bool | None:
        """None if nobody said."""
        request = ListSearchAttributesRequest(namespace=self._client.namespace)
        try:
            async with asyncio.timeout(_TIMEOUT.total_seconds()):
                found = (
                    await self._client.operator_service.list_search_attributes(request, timeout=_TIMEOUT)
                ).custom_attributes
        except (RPCError, TimeoutError, RuntimeError) as error:  # RuntimeError: a lazy client that cannot connect
            logger.warning("search_attributes.unknown", extra={"reason": type(error).__name__})
            return None
        return all(found.get(name) == IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD for name in SEARCH_ATTRIBUTES)
