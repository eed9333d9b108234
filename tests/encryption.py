"""The whole suite with encryption on: `MCP_TASKS_TEST_ENCRYPTION=1 make test`, and the same for `make conformance`.

Programs that tests start then have keys, and clients and workers of the tests' own the same codec, so that what they
read of Temporal is what the product reads. Workers of others have none: their catalog entries say so.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any, Final

from pydantic import SecretStr
from temporalio.api.common.v1 import Payload
from temporalio.converter import DataConverter

from bridge.codec import EncryptionCodec, data_converter
from bridge.settings import PREFIX

ENCRYPTED: Final = os.environ.get("MCP_TASKS_TEST_ENCRYPTION") == "1"

KEYS: Final = "tests:MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
"""A key that hides nothing: it is here."""

KEY_VARIABLE: Final = f"{PREFIX}ENCRYPTION_KEYS"

CONVERTER: Final[DataConverter] = data_converter([SecretStr(KEYS)] if ENCRYPTED else [])
"""What clients and workers of the tests convert with."""


def value_of(payload: Payload) -> Any:
    """The JSON value in a payload as Temporal has it."""
    codec = CONVERTER.payload_codec
    plain = codec.decrypted(payload) if isinstance(codec, EncryptionCodec) else payload
    return json.loads(plain.data)


def key_environment() -> dict[str, str]:
    """What programs are started with."""
    return {KEY_VARIABLE: KEYS} if ENCRYPTED else {}


def for_workers_without_codec(catalog: Path, folder: Path) -> Path:
    """A copy of a catalog, and of the schemas beside it, in `folder`, whose entries are all `encrypted = false`."""
    for schema in catalog.parent.glob("*.json"):
        shutil.copy(schema, folder)
    text = catalog.read_text("utf-8")
    copy = folder / catalog.name
    copy.write_text(re.sub(r"^(\[tools\.[^].]+\])$", r"\1\nencrypted = false", text, flags=re.MULTILINE), "utf-8")
    return copy
