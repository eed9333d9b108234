"""The format is that of Temporal's published samples, and a ring of keys can be changed while histories are read."""

from __future__ import annotations

from typing import Final

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.exceptions import ApplicationError

from bridge.codec import EncryptionCodec, EncryptionKey, Undecryptable, data_converter, unencrypted
from bridge.payloads import Payloads, nothing_parsed
from bridge.settings import BridgeSettings, CodecServerSettings, SettingsError, StdioSettings, WorkerSettings
from tests.codec.keys import FIRST, IMPOSTOR, SECOND, codec, converter, key

PLAIN: Final = Payload(metadata={"encoding": b"json/plain"}, data=b'{"text":"hello"}')

SAMPLE_KEY: Final = b"test-key-test-key-test-key-test!"
"""The key of the samples."""

VECTOR: Final = Payload(
    metadata={"encoding": b"binary/encrypted", "encryption-key-id": b"test-key-id"},
    data=bytes.fromhex(
        "30313233343536373839616280bbb1b2c8094736b8dfad1c238e96fa25da5d7245bc3188f63e60e85c5136f386c6d0bae233ec3febcd66"
        "860a9dd1fe135034346eac2cf95516"
    ),
)
"""`PLAIN` under that key, with the nonce `0123456789ab`, made with Node's `crypto`."""


async def test_what_another_implementation_encrypted_is_decrypted() -> None:
    ours = EncryptionCodec([EncryptionKey("test-key-id", SAMPLE_KEY)])
    assert await ours.decode([VECTOR]) == [PLAIN]


async def test_what_is_encrypted_here_is_what_another_implementation_expects() -> None:
    (payload,) = await EncryptionCodec([EncryptionKey("test-key-id", SAMPLE_KEY)]).encode([PLAIN])
    assert payload.metadata == {"encoding": b"binary/encrypted", "encryption-key-id": b"test-key-id"}
    plain = AESGCM(SAMPLE_KEY).decrypt(payload.data[:12], payload.data[12:], None)
    assert Payload.FromString(plain) == PLAIN


async def test_no_nonce_is_used_twice() -> None:
    payloads = await codec(FIRST).encode([PLAIN] * 100)
    assert len({payload.data[:12] for payload in payloads}) == 100
    assert len({payload.data[12:] for payload in payloads}) == 100


# Rotation


async def test_the_first_key_encrypts_and_all_decrypt() -> None:
    before, between, after = codec(FIRST), codec(FIRST, SECOND), codec(SECOND, FIRST)
    (old,), (new,) = await before.encode([PLAIN]), await after.encode([PLAIN])
    assert (old.metadata["encryption-key-id"], new.metadata["encryption-key-id"]) == (b"autumn", b"winter")
    for ring in (between, after):
        assert await ring.decode([old, PLAIN, new]) == [PLAIN] * 3
    assert await codec(SECOND).decode([new]) == [PLAIN]


async def test_a_key_that_is_not_there_is_named() -> None:
    (payload,) = await codec(FIRST).encode([PLAIN])
    with pytest.raises(Undecryptable, match="encrypted with the key 'autumn', which is none of those set here"):
        await codec(SECOND).decode([payload])


async def test_another_key_under_the_same_name_is_told_apart() -> None:
    (payload,) = await codec(FIRST).encode([PLAIN])
    with pytest.raises(Undecryptable, match="cannot be decrypted with the key 'autumn'"):
        await codec(IMPOSTOR).decode([payload])


@pytest.mark.parametrize("place", [0, 12, -1])
async def test_what_was_changed_is_refused(place: int) -> None:
    (payload,) = await codec(FIRST).encode([PLAIN])
    data = bytearray(payload.data)
    data[place] ^= 1
    with pytest.raises(Undecryptable, match="or it was changed"):
        await codec(FIRST).decode([Payload(metadata=payload.metadata, data=bytes(data))])


@pytest.mark.parametrize("size", [0, 5, 12, 27])
async def test_what_is_too_short_to_be_encrypted_is_refused(size: int) -> None:
    metadata = {"encoding": b"binary/encrypted", "encryption-key-id": b"autumn"}
    with pytest.raises(Undecryptable):
        await codec(FIRST).decode([Payload(metadata=metadata, data=b"x" * size)])


@pytest.mark.parametrize("encoding", [b"json/plain", b"binary/plain", b"binary/null", b"binary/zlib", b""])
async def test_what_is_not_encrypted_passes(encoding: bytes) -> None:
    payload = Payload(metadata={"encoding": encoding} if encoding else {}, data=b"x")
    assert await codec(FIRST).decode([payload]) == [payload]


# The converter


async def test_a_failure_tells_nothing_in_plain_text_but_its_type() -> None:
    failure = Failure()
    error = ApplicationError("the message", {"the": "detail"}, type="acme.Closed")
    error.__cause__ = ValueError("the cause")
    try:
        raise error
    except ApplicationError:
        await converter(FIRST).encode_failure(error, failure)
    stored = failure.SerializeToString()
    assert not [text for text in (b"the cause", b"the message", b"detail", b"test_format") if text in stored]
    assert (failure.message, failure.application_failure_info.type) == ("Encoded failure", "acme.Closed")
    read = await converter(SECOND, FIRST).decode_failure(failure)
    assert isinstance(read, ApplicationError)
    assert (read.message, read.details, str(read.cause)) == (
        "the message",
        ({"the": "detail"},),
        "ValueError: the cause",
    )


async def test_without_keys_nothing_is_encrypted() -> None:
    (payload,) = await data_converter([]).encode([{"text": "hello"}])
    assert payload == PLAIN
    (payload,) = await unencrypted(converter(FIRST)).encode([{"text": "hello"}])
    assert payload == PLAIN


async def test_a_payload_is_parsed_once_whatever_order_its_metadata_comes_in() -> None:
    """A server written in Go sends the entries of a map in any order, and for some names, other ones in each process,
    they are written as they came.
    """
    seen = []
    payloads = Payloads(converter(FIRST), "default", "task", nothing_parsed())

    def parse(value: object, _task_id: str) -> object:
        seen.append(value)
        return value

    for number in range(500):
        entries = [("encoding", b"json/plain"), (f"name-{number}", b"x")]
        for ordered in (entries, entries[::-1]):
            payload = Payload(data=str(number).encode())
            for name, value in ordered:
                payload.metadata[name] = value
            assert await payloads.parsed(payload, parse) == number
    assert seen == list(range(500))


# The setting


@pytest.mark.parametrize("model", [BridgeSettings, StdioSettings, WorkerSettings, CodecServerSettings])
@pytest.mark.parametrize(
    "value",
    [
        "c2VjcmV0LXNlY3JldA==",
        f"{FIRST},{IMPOSTOR}",
        f"{FIRST},{key('other', 'a')}",
        "a b:" + FIRST.partition(":")[2],
        ":" + FIRST.partition(":")[2],
        "short:c2VjcmV0LXNlY3JldA==",
        "long:" + FIRST.partition(":")[2][:-4] + "c2VjcmV0LXNlY3JldA==",
        "hex:" + "5e" * 32,
        "odd:secret-secret-$$",
    ],
)
def test_keys_that_cannot_be_used_end_the_start_with_a_line_that_repeats_nothing(
    model: type[WorkerSettings], value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_TASKS_ENCRYPTION_KEYS", value)
    with pytest.raises(SettingsError) as caught:
        model.load()
    line = str(caught.value)
    assert line.startswith("MCP_TASKS_ENCRYPTION_KEYS must be different keys of 32 bytes, comma-separated, each as ID:")
    assert not [part for pair in value.split(",") for part in pair.split(":") if len(part) > 9 and part in line]


def test_keys_that_can_be_used_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_TASKS_ENCRYPTION_KEYS", f" {FIRST} , {SECOND}")
    settings = WorkerSettings.load()
    assert [pair.get_secret_value() for pair in settings.encryption_keys] == [FIRST, SECOND]
    assert FIRST.partition(":")[2] not in repr(settings)
    assert repr(EncryptionKey.parse(FIRST)) == "EncryptionKey(id='autumn')"
