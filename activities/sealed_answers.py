"""Opening what a person entered on the server's page for this worker's eyes alone (`workflows.kit.sealed`).

Call it in the activity that uses the secret, and let it out of there neither in a result nor in an error: both are kept
in history. `MCP_TASKS_ANSWER_PRIVATE_KEYS` has the private keys, each as `ID:BASE64`; of several each opens what was
sealed for it, so that a new pair can come before the old one goes.
"""

from __future__ import annotations

import base64
import binascii
import logging
import os
from typing import Final, TypeVar

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from pydantic import BaseModel, ValidationError
from temporalio import activity

from workflows.kit import SealedAnswer, ToolError
from workflows.kit.sealed import binding, parse_key

KEYS_VARIABLE: Final = "MCP_TASKS_ANSWER_PRIVATE_KEYS"

FormT = TypeVar("FormT", bound=BaseModel)

_SUITE: Final = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)

log = logging.getLogger(__name__)


def opened(sealed: SealedAnswer, form: type[FormT]) -> FormT:
    """What was entered into `form`. Within an activity of the task that asked, and of no other.

    Raises:
        ToolError: It cannot be opened here; the log of the worker says why.
    """
    if sealed.task != activity.info().workflow_id:
        raise _unopened("another task's")
    keys = dict(parse_key(pair.strip()) for pair in os.environ.get(KEYS_VARIABLE, "").split(",") if pair.strip())
    if sealed.key_id not in keys:
        raise _unopened("no key of that id", key_id=sealed.key_id)
    try:
        private = X25519PrivateKey.from_private_bytes(keys[sealed.key_id])
        content = _SUITE.decrypt(base64.b64decode(sealed.data), private, binding(sealed.task, sealed.key))
        return form.model_validate_json(content)
    except (InvalidTag, binascii.Error):
        raise _unopened("another key or question, or changed", key_id=sealed.key_id) from None
    except ValidationError as error:  # its text may hold what was entered
        fields = sorted({".".join(map(str, problem["loc"])) for problem in error.errors(include_input=False)})
        raise ToolError(f"What was entered cannot be used: {', '.join(fields)}.") from None


def _unopened(why: str, **extra: str) -> ToolError:
    log.error("answer.unopened", extra={"why": why, **extra})
    return ToolError("The worker cannot open what was entered on the page. Its operator must look at its keys.")
