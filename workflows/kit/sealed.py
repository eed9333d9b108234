"""Answers that only the worker can read: sealed on the bridge's page, opened in the activity that uses them.

HPKE (RFC 9180: DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-256-GCM, base mode) for a key pair of the deployment, whose
private half only workers have. Task and key are part of what is sealed (`binding`), so a sealed answer that is carried
to another task or question opens nowhere. This module says what both sides agree on; the cryptography is theirs.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from typing import Any, Final, Literal

from pydantic import SecretStr

from .contract import Wire
from .forms import Form, check_schema, form_schema

KEY_BYTES: Final = 32
"""Of an X25519 key, private or public."""

MAX_SEALED_CHARS: Final = 64 * 1024
"""Longest sealed answer, in Base64."""

BLOCK_BYTES: Final = 256
"""What is sealed is filled up to a multiple of this: its length must not tell that of a password."""

_INFO: Final = "mcp-temporal-tasks/sealed-answer/1"
_KEY_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")


class SealedAnswer(Wire):
    """The answer to `ask_secret`. Give it to the activity that needs it, and into a checkpoint's state; nothing in a
    workflow can open it. `task` and `key` name the question, `key_id` the key it is sealed for, `data` is Base64.
    """

    v: Literal[1] = 1
    task: str
    key: str
    key_id: str
    data: str


class SecretForm(Form):
    """A form for a page, never for a client: as `Form`, and a field may be a `SecretStr`, which is typed unseen."""

    @classmethod
    def requested_schema(cls) -> dict[str, Any]:
        """The schema of this form; secret properties are strings that say `writeOnly`."""
        secret = {field.alias or name for name, field in cls.model_fields.items() if field.annotation is SecretStr}
        schema = form_schema(cls, secret)
        for name in secret:
            schema["properties"][name]["writeOnly"] = True
        return schema


def check_page_form(owner: str, schema: Mapping[str, Any]) -> None:
    """Raises TypeError, which starts with `owner`, if `schema` is not that of a form for a page."""
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        raise TypeError(f"{owner}: a form's schema is an object schema with properties")
    plain = {
        name: {keyword: value for keyword, value in prop.items() if keyword != "writeOnly"}
        if isinstance(prop, Mapping)
        else prop
        for name, prop in properties.items()
    }
    check_schema(owner, {**schema, "properties": plain})


def binding(task: str, key: str) -> bytes:
    """What a sealed answer is bound to: HPKE's `info`."""
    return json.dumps([_INFO, task, key], ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def padded(content: Mapping[str, Any]) -> bytes:
    """`content` as JSON, with blanks up to the next multiple of `BLOCK_BYTES`."""
    text = json.dumps(content, separators=(",", ":")).encode()
    return text + b" " * (-len(text) % BLOCK_BYTES)


def sealed_problem(sealed: object) -> str | None:
    """Why `sealed` cannot be what a page sealed; None if it can."""
    if not isinstance(sealed, Mapping):
        return "the answer must be sealed"
    key_id, data = sealed.get("keyId"), sealed.get("data")
    if not isinstance(key_id, str) or not _KEY_ID.fullmatch(key_id):
        return "the sealed answer names no key"
    if not isinstance(data, str) or not 0 < len(data) <= MAX_SEALED_CHARS:
        return "the sealed answer has no data, or too much"
    return None


def parse_key(pair: str) -> tuple[str, bytes]:
    """Id and key of `ID:BASE64`. Raises ValueError, which repeats nothing of it: it is no key."""
    key_id, separator, encoded = pair.partition(":")
    if not separator or not _KEY_ID.fullmatch(key_id):
        raise ValueError("not an id and a key")
    try:
        key = base64.b64decode(encoded, validate=True)
    except binascii.Error:
        raise ValueError("not base64") from None
    if len(key) != KEY_BYTES:
        raise ValueError("not a key of 256 bits")
    return key_id, key
