"""Signing: the headers of the Standard Webhooks, version 1.0.0."""

import base64
import hashlib
import hmac
from collections.abc import Iterable


def headers(id: str, timestamp: int, body: bytes, keys: Iterable[bytes]) -> dict[str, str]:
    """Return the headers that go with a body: its id, the time of sending, and its signatures.

    ``timestamp`` is in seconds since the epoch. Each key makes a signature, so that a receiver
    may change from one key to the next. Source: the specification of Standard Webhooks.
    """
    signed = f"{id}.{timestamp}.".encode() + body
    signatures = [hmac.new(key, signed, hashlib.sha256).digest() for key in keys]
    return {
        "webhook-id": id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(
            f"v1,{base64.b64encode(signature).decode()}" for signature in signatures
        ),
    }
