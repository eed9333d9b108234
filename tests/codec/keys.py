"""Keys of tests. They hide nothing: they are here."""

from __future__ import annotations

import base64
from typing import Final

from pydantic import SecretStr
from temporalio.converter import DataConverter

from bridge.codec import EncryptionCodec, data_converter, key_ring


def key(name: str, filling: str) -> str:
    """A key as its setting writes it."""
    return f"{name}:{base64.b64encode(filling.encode() * 32).decode()}"


FIRST: Final = key("autumn", "a")
SECOND: Final = key("winter", "b")
IMPOSTOR: Final = key("autumn", "c")
"""Another key under the first one's id."""


def codec(*pairs: str) -> EncryptionCodec:
    """A codec with this ring."""
    return EncryptionCodec(key_ring([SecretStr(pair) for pair in pairs]))


def converter(*pairs: str) -> DataConverter:
    """What a client or a worker with this ring converts with."""
    return data_converter([SecretStr(pair) for pair in pairs])
