"""Keeps what a step hands back within what Temporal can store.

A result or failure that is too large for one message to Temporal is never delivered: the step would look as if it ran
until it timed out, and be tried again. Here it fails at once instead, with a message that names the limit. What
workflows hand over is checked by Temporal itself, which ends the run.
"""

from __future__ import annotations

from typing import Any, Final

from temporalio import activity
from temporalio.exceptions import ApplicationError, FailureError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from workflows.kit.contract import cut
from workflows.kit.results import can_be_stored, storable, text_of

MAX_STEP_BYTES: Final = 2 * 1024 * 1024 - 1024
"""Temporal's own limit for one payload, less what it takes beside its JSON, also when it is encrypted."""


class BoundedSteps(Interceptor):
    """The worker's interceptor."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """See the base class."""
        return _BoundedStep(next)


class _BoundedStep(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        converter = activity.payload_converter()
        try:
            result = await self.next.execute_activity(input)
        except FailureError as error:
            bounded = storable(error, converter)
            if bounded is error:
                raise
            raise bounded from None
        except Exception as error:
            if can_be_stored(error, converter):
                raise
            raise ApplicationError(cut(text_of(error)), type=type(error).__name__) from None
        size = sum(len(payload.data) for payload in converter.to_payloads([result]))
        if size > MAX_STEP_BYTES:
            message = f"The result of a step is too large: {size} bytes of JSON, the limit is {MAX_STEP_BYTES}."
            raise ApplicationError(message, type="TooLarge", non_retryable=True)
        return result
