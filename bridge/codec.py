"""Encryption at rest: of what Temporal stores of a task, only holders of the deployment's keys can read the payloads.

AES-256-GCM in the format of Temporal's published samples, for which codecs exist in other languages: the serialized
payload is encrypted as a whole, `data` is a nonce of 12 bytes and the ciphertext with its tag, and the metadata names
encoding and key. The first key of the ring encrypts, all decrypt, so a key is changed without an interruption. What is
not encrypted passes: histories from before, and what workers without a codec write. The format binds a payload to no
place: it hides, and shows a change of a payload, but not that two were swapped.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from google.protobuf.message import DecodeError
from pydantic import SecretStr
from temporalio.api.common.v1 import Payload
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.converter import DataConverter, DefaultFailureConverterWithEncodedAttributes, PayloadCodec

from workflows.kit.sealed import parse_key

ENCODING: Final = b"binary/encrypted"
ENCODING_FIELD: Final = "encoding"
KEY_ID_FIELD: Final = "encryption-key-id"

NONCE_BYTES: Final = 12
TAG_BYTES: Final = 16
KEY_BYTES: Final = 32


class Undecryptable(ValueError):
    """A payload that is marked as encrypted cannot be decrypted with these keys. The message holds nothing of it but
    the name of its key.
    """


@dataclass(frozen=True, slots=True)
class EncryptionKey:
    """A named AES-256 key. The id is written beside everything that is encrypted with it, and is no secret."""

    id: str
    secret: bytes = field(repr=False)

    @classmethod
    def parse(cls, pair: str) -> Self:
        """The key that `ID:BASE64` writes.

        Raises:
            ValueError: It does not, or the key has another length; the message repeats nothing of it.
        """
        return cls(*parse_key(pair))


def key_ring(pairs: Iterable[SecretStr]) -> tuple[EncryptionKey, ...]:
    """The keys that `pairs` write, in their order.

    Raises:
        ValueError: One cannot be used, or two have one id or one key.
    """
    keys = tuple(EncryptionKey.parse(pair.get_secret_value()) for pair in pairs)
    if len({key.id for key in keys}) < len(keys) or len({key.secret for key in keys}) < len(keys):
        raise ValueError("repeated id or key")
    return keys


class EncryptionCodec(PayloadCodec):
    """Encrypts with the first key of a ring, and decrypts with the one that a payload names."""

    def __init__(self, keys: Sequence[EncryptionKey]) -> None:
        """`keys` holds one at least."""
        self._metadata = {ENCODING_FIELD: ENCODING, KEY_ID_FIELD: keys[0].id.encode()}
        self._ciphers = {key.id.encode(): AESGCM(key.secret) for key in keys}
        self._first = self._ciphers[keys[0].id.encode()]

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Each payload, encrypted."""
        return [self._encrypted(payload) for payload in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Each payload decrypted; as it is, if it is not marked as encrypted.

        Raises:
            Undecryptable: One was encrypted with another key, or has been changed.
        """
        return [self.decrypted(payload) for payload in payloads]

    def decrypted(self, payload: Payload) -> Payload:
        """See `decode`."""
        if payload.metadata.get(ENCODING_FIELD) != ENCODING:
            return payload
        key_id = payload.metadata.get(KEY_ID_FIELD, b"")
        cipher = self._ciphers.get(key_id)
        named = key_id[:64].decode("ascii", "replace")
        if cipher is None:
            raise Undecryptable(f"a payload is encrypted with the key {named!r}, which is none of those set here")
        try:
            return Payload.FromString(cipher.decrypt(payload.data[:NONCE_BYTES], payload.data[NONCE_BYTES:], None))
        except (InvalidTag, ValueError, DecodeError):  # ValueError: not even a nonce
            raise Undecryptable(
                f"a payload cannot be decrypted with the key {named!r}: another key has this id, or it was changed"
            ) from None

    def _encrypted(self, payload: Payload) -> Payload:
        nonce = os.urandom(NONCE_BYTES)
        data = nonce + self._first.encrypt(nonce, payload.SerializeToString(), None)
        return Payload(metadata=self._metadata, data=data)


def data_converter(pairs: Sequence[SecretStr]) -> DataConverter:
    """The converter of every client and worker of a deployment with these keys; without any, nothing is encrypted.

    With keys, messages and stack traces of failures are encrypted, too: whoever has no codec reads "Encoded failure",
    and so does whoever gets the error of a query (the SDK decodes no such error).

    Raises:
        ValueError: See `key_ring`.
    """
    if not pairs:
        return pydantic_data_converter
    return replace(
        pydantic_data_converter,
        payload_codec=EncryptionCodec(key_ring(pairs)),
        failure_converter_class=DefaultFailureConverterWithEncodedAttributes,
    )


def unencrypted(converter: DataConverter) -> DataConverter:
    """The same converter for what is written to workers that have no codec."""
    return replace(
        converter, payload_codec=None, failure_converter_class=pydantic_data_converter.failure_converter_class
    )
