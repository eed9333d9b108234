"""Temporal payloads as JSON values, and back.

Values are read with the standard library's JSON reader behind the client's own codec: pydantic's stops at a depth of
200, and a task's result is the author's. What is not JSON is absent, and logged; what a codec cannot open is no
statement about the task at all (a replica with the wrong key must not make clients forget their tasks), so it reads
as an outage.

A memo is read with each describe of its task, and hardly ever changes, so what was made of a payload is remembered by
its bytes.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable
from operator import itemgetter
from typing import Any, Final, TypeVar

from cachetools import LRUCache
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue
from temporalio.converter import DataConverter, WorkflowSerializationContext

from bridge.errors import EngineUnavailable, TooLarge
from workflows.kit.contract import MAX_PAYLOAD_BYTES

logger = logging.getLogger(__name__)

_JSON_ENCODINGS: Final = frozenset({b"json/plain", b"json/protobuf"})
_NOT_JSON: Final = frozenset({b"binary/null", b"binary/plain", b"binary/protobuf"})

PARSED_BYTES: Final = 16 * 1024 * 1024

_OBJECT_FACTOR: Final = 5
_OBJECT_BYTES: Final = 1_000
"""What is remembered takes a few times its payload in memory, with the payload itself, and something besides."""

T = TypeVar("T")


Parsed = LRUCache[tuple[object, str, bytes], tuple[Any, int]]
"""What was made of a task's payloads, and the bytes that it takes."""


def nothing_parsed() -> Parsed:
    """Room for `PARSED_BYTES`, those used latest."""
    return LRUCache(PARSED_BYTES, getsizeof=itemgetter(1))


class Payloads:
    """Reads and writes the payloads of one task."""

    def __init__(self, converter: DataConverter, namespace: str, task_id: str, parsed: Parsed) -> None:
        self._converter = converter
        self._namespace = namespace
        self._task_id = task_id
        self._parsed = parsed

    async def parsed(self, payload: Payload, parse: Callable[[Any, str], T]) -> T:
        """What `parse` makes of the JSON value in `payload` and of the task's id; nobody may change it.

        Raises:
            EngineUnavailable: See `json`.
        """
        # The entries of a map come in any order, and an encrypted payload has two in its metadata
        key = (parse, self._task_id, payload.SerializeToString(deterministic=True))
        if (known := self._parsed.get(key)) is not None:
            made: T = known[0]
            return made
        made = parse(await self.json(payload), self._task_id)
        size = len(key[2]) * _OBJECT_FACTOR + _OBJECT_BYTES
        if size <= PARSED_BYTES:
            self._parsed[key] = (made, size)
        return made

    async def json(self, payload: Payload) -> Any:
        """The JSON value in `payload`; None if it holds none.

        Raises:
            EngineUnavailable: The payload is encoded in a way that this replica cannot open.
        """
        plain = await self._opened(payload)
        encoding = plain.metadata.get("encoding", b"")
        if encoding in _JSON_ENCODINGS:
            try:
                return _DECODER.decode(plain.data.decode("utf-8", "surrogatepass"))
            except (ValueError, RecursionError) as error:
                logger.warning("payload.unreadable", extra={"task_id": self._task_id, "reason": type(error).__name__})
                return None
        if encoding not in _NOT_JSON:
            logger.error(
                "payload.unknown_encoding",
                extra={"task_id": self._task_id, "encoding": encoding.decode("ascii", "replace")},
            )
            raise EngineUnavailable
        if encoding != b"binary/null":
            logger.warning("payload.not_json", extra={"task_id": self._task_id})
        return None

    async def _opened(self, payload: Payload) -> Payload:
        if self._converter.payload_codec is None and self._converter.external_storage is None:
            return payload
        context = WorkflowSerializationContext(namespace=self._namespace, workflow_id=self._task_id)
        try:
            (raw,) = await self._converter.with_context(context).decode([payload], [RawValue])
        except Exception as error:  # whatever an operator's codec raises
            logger.exception("payload.codec_failed", extra={"task_id": self._task_id})
            raise EngineUnavailable from error
        assert isinstance(raw, RawValue)  # noqa: S101 - it is what was asked for
        return raw.payload


def encoded(converter: DataConverter, value: Any) -> RawValue:
    """`value` as the one payload of a start or a signal; the client's codec is applied when it is sent.

    Raises:
        TooLarge: More than `MAX_PAYLOAD_BYTES` of JSON.
    """
    (payload,) = converter.payload_converter.to_payloads([value])
    if len(payload.data) > MAX_PAYLOAD_BYTES:
        raise TooLarge
    return RawValue(payload)


def _null(_constant: str) -> None:
    """NaN and infinities, which Python writers emit, are no JSON; a client's strict reader would refuse the whole
    answer."""


def _finite(literal: str) -> float | None:
    number = float(literal)
    return number if math.isfinite(number) else None


_DECODER: Final = json.JSONDecoder(parse_constant=_null, parse_float=_finite)
