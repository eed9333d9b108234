"""The codec server with the access tokens of an authorization server: for operators alone."""

from __future__ import annotations

import aiohttp
import pytest
from google.protobuf import json_format
from temporalio.api.common.v1 import Payload, Payloads

from tests.authserver.running import authorization_server
from tests.codec.keys import FIRST, codec
from tests.installs import Uninstallable
from tests.support import mcp_tasks, plain_environment

pytestmark = pytest.mark.asyncio(loop_scope="session")

RESOURCE = "http://127.0.0.1:8000/mcp"
PLAIN = Payload(metadata={"encoding": b"json/plain"}, data=b'"mark-plain"')


async def test_an_operators_access_token_decrypts_and_no_other_does() -> None:
    (payload,) = await codec(FIRST).encode([PLAIN])
    body = json_format.MessageToDict(Payloads(payloads=[payload]))
    try:
        async with authorization_server() as server:
            environment = plain_environment(
                MCP_TASKS_ENCRYPTION_KEYS=FIRST,
                MCP_TASKS_OAUTH_ISSUERS=server.issuer,
                MCP_TASKS_RESOURCE_URL=RESOURCE,
            )
            tokens = {
                await server.token("alice", RESOURCE, "tasks:operate"): 200,
                await server.token("alice", RESOURCE, "tasks:call tasks:read tasks:answer"): 403,
                await server.token("alice", f"{RESOURCE}/other", "tasks:operate"): 401,
                "made-up": 401,
            }
            async with (
                mcp_tasks("codec-server", "--port", "0", environment=environment) as program,
                aiohttp.ClientSession() as session,
            ):
                for token, status in tokens.items():
                    headers = {"Authorization": f"Bearer {token}"}
                    async with session.post(f"{program.ready['codec']}/decode", json=body, headers=headers) as answer:
                        assert answer.status == status
                        if status == 200:
                            assert list(json_format.ParseDict(await answer.json(), Payloads()).payloads) == [PLAIN]
    except Uninstallable as reason:
        pytest.skip(f"oidc-provider cannot be installed: {reason}")
