"""The bridge's own TLS, and callers who are known by a certificate.

Certificates are asked for and not demanded in the handshake, so that health checks need none; at the endpoint the
authenticator demands one. One that no configured authority has signed ends the handshake.
"""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from aiohttp import web
from cryptography import x509

from bridge.identity import Identity, Unauthenticated, is_subject
from bridge.settings import SettingsError
from workflows.kit.contract import Principal

CHALLENGE: Final = "Client-Certificate"
"""HTTP wants a challenge; this one is met in the TLS handshake."""

ISSUER_PREFIX: Final = "x509:"


def server_context(certificate: Path, key: Path, client_authorities: Path | None) -> ssl.SSLContext:
    """The listener's TLS; with `client_authorities` clients may show certificates that these have signed.

    Raises SettingsError: A file cannot be used.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
        if client_authorities is not None:
            context.load_verify_locations(client_authorities)
            context.verify_mode = ssl.CERT_OPTIONAL
    except OSError as error:  # ssl.SSLError is one
        files = ", ".join(str(file) for file in (certificate, key, client_authorities) if file)
        raise SettingsError(f"TLS cannot be set up with {files}: {error.strerror or error}") from error
    return context


async def client_certificate(request: web.Request) -> Identity:
    """An `Authenticator`: whoever the certificate of the connection names.

    The issuer is its issuer's distinguished name, the subject its own (RFC 4514), so that a renewed certificate is the
    same owner. Raises Unauthenticated.
    """
    connection = request.transport.get_extra_info("ssl_object") if request.transport else None
    shown = connection.getpeercert(binary_form=True) if connection is not None else None
    if not shown:
        raise Unauthenticated(CHALLENGE, text="A client certificate is required.")
    certificate = x509.load_der_x509_certificate(shown)
    if certificate.not_valid_after_utc <= datetime.now(UTC):  # the handshake may be long ago
        raise Unauthenticated(CHALLENGE, text="The client certificate has expired.")
    subject = certificate.subject.rfc4514_string()
    if not is_subject(subject):
        raise Unauthenticated(CHALLENGE, text="The client certificate has no usable subject.")
    return Identity(
        principal=Principal(issuer=ISSUER_PREFIX + certificate.issuer.rfc4514_string(), subject=subject),
        expires_at=certificate.not_valid_after_utc.timestamp(),
    )
