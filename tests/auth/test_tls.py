"""Callers who are known by a certificate, on the bridge's own TLS listener."""

from __future__ import annotations

import asyncio
import datetime
import json
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from bridge import connections
from bridge.dev_server import DevServer
from bridge.settings import SettingsError
from bridge.tls import server_context
from tests.cases.client import McpClient
from tests.support import Program, eventually, mcp_tasks, plain_environment, unique

pytestmark = pytest.mark.asyncio(loop_scope="session")


@dataclass(frozen=True)
class Certificate:
    """A certificate and its key, as files."""

    chain: Path
    key: Path


class Authority:
    """Signs certificates; its own is at `file`."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        own = self._builder(self._name, self._key).add_extension(x509.BasicConstraints(True, None), critical=True)
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(own.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, seconds: float = 3600
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=1))
            .not_valid_after(now + datetime.timedelta(seconds=seconds))
        )

    def certificate(self, name: str, *, server: bool = False, seconds: float = 3600) -> Certificate:
        """A new one."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Acme, Inc."),
                x509.NameAttribute(NameOID.COMMON_NAME, name),
            ]
        )
        use = ExtendedKeyUsageOID.SERVER_AUTH if server else ExtendedKeyUsageOID.CLIENT_AUTH
        alternatives = x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))])
        built = (
            self._builder(subject, key, seconds)
            .add_extension(x509.ExtendedKeyUsage([use]), critical=False)
            .add_extension(alternatives, critical=False)
        )
        stem = unique(name)
        chain, key_file = self._folder / f"{stem}.pem", self._folder / f"{stem}.key"
        chain.write_bytes(built.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        key_file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return Certificate(chain, key_file)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "Acme")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def bridge(temporal: DevServer, authority: Authority) -> AsyncIterator[Program]:
    """A bridge with TLS that knows callers by their certificates."""
    own = authority.certificate("bridge", server=True)
    environment = plain_environment(
        TEMPORAL_ADDRESS=temporal.address,
        MCP_TASKS_SINGLE_REPLICA="true",
        MCP_TASKS_TLS_CERT_FILE=str(own.chain),
        MCP_TASKS_TLS_KEY_FILE=str(own.key),
        MCP_TASKS_CLIENT_CA_FILE=str(authority.file),
    )
    async with mcp_tasks("bridge", "--port", "0", "--tasks", "tests.auth.whoami", environment=environment) as program:
        yield program


def trusting(authority: Authority, shown: Certificate | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.file))
    if shown:
        context.load_cert_chain(shown.chain, shown.key)
    return context


async def whoami(bridge: Program, context: ssl.SSLContext) -> tuple[int, Any]:
    async with aiohttp.ClientSession() as session:
        return await asked_again(bridge, context, session)


async def asked_again(bridge: Program, context: ssl.SSLContext, session: aiohttp.ClientSession) -> tuple[int, Any]:
    """The same on the connection that `session` has, if it has one."""
    url = bridge.ready["mcp"]
    assert url.startswith("https://127.0.0.1:")
    async with McpClient(url) as client:
        params = {"uri": "who://am-i"}
        headers = client.headers("resources/read", params) | {"Mcp-Name": params["uri"]}
        body = client.body("resources/read", params)
        async with session.post(url, json=body, headers=headers, ssl=context) as response:
            text = await response.text()
            return response.status, json.loads(text) if response.content_type == "application/json" else text


async def test_the_certificate_names_the_caller_and_its_renewal_the_same(bridge: Program, authority: Authority) -> None:
    for shown in (authority.certificate("alice"), authority.certificate("alice")):
        status, answer = await whoami(bridge, trusting(authority, shown))
        assert status == 200
        who = json.loads(answer["result"]["contents"][0]["text"])
        assert who == {"issuer": "x509:CN=Acme", "subject": "CN=alice,O=Acme\\, Inc.", "ends": True}


async def test_without_a_certificate_only_health_is_served(bridge: Program, authority: Authority) -> None:
    context = trusting(authority, None)
    status, text = await whoami(bridge, context)
    assert (status, text) == (401, "A client certificate is required.\n")
    async with aiohttp.ClientSession() as session:
        async with session.get(bridge.ready["mcp"].replace("/mcp", "/healthz"), ssl=context) as response:
            assert response.status == 200


async def test_a_certificate_of_another_authority_is_refused_in_the_handshake(
    bridge: Program, authority: Authority, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path, "Stranger").certificate("alice")
    with pytest.raises(aiohttp.ClientError):
        await whoami(bridge, trusting(authority, stranger))


async def test_an_open_connection_does_not_outlive_its_certificate(bridge: Program, authority: Authority) -> None:
    context = trusting(authority, authority.certificate("alice", seconds=8))
    async with aiohttp.ClientSession() as session:
        assert (await asked_again(bridge, context, session))[0] == 200

        async def refused() -> bool:
            status, text = await asked_again(bridge, context, session)
            return (status, text) == (401, "The client certificate has expired.\n")

        await eventually(refused, what="the end of the certificate", within=60)


async def test_files_that_cannot_be_used_are_told_by_name(authority: Authority, tmp_path: Path) -> None:
    own = authority.certificate("bridge", server=True)
    with pytest.raises(SettingsError, match="absent"):
        server_context(tmp_path / "absent.pem", own.key, None)
    with pytest.raises(SettingsError, match="TLS cannot be set up"):
        server_context(own.chain, authority.certificate("other").key, None)


async def test_a_handshake_that_does_not_come_is_not_waited_for_long(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it is done the connection counts as none, so nothing else bounds how many wait."""
    monkeypatch.setattr(connections, "HANDSHAKE_SECONDS", 0.2)
    own = authority.certificate("bridge", server=True)
    runner = connections.Runner(web.Application(), access_log=None)
    await runner.setup()
    try:
        await connections.Site(runner, "127.0.0.1", 0, ssl_context=server_context(own.chain, own.key, None)).start()
        reader, writer = await asyncio.open_connection(*runner.addresses[0])
        async with asyncio.timeout(20):
            assert await reader.read() == b""
        writer.close()
    finally:
        await runner.cleanup()
