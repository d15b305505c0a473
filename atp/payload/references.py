"""References: inputs that stand for what is at an address, which the worker fetches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

# The tag of a reference in JSON.
TAG = "$reference"


@dataclass(frozen=True)
class Reference:
    """What is at the address ``href``. ``content_type`` is what the client says of it, or ""."""

    href: str
    content_type: str = ""


def encode(reference: Reference) -> dict[str, Any]:
    """Return a reference as stored JSON."""
    return {TAG: [reference.href, reference.content_type]}


def decode(parts: Any) -> Reference:
    """Return the reference that :func:`encode` has written. Raises ValueError."""
    href, content_type = parts
    if not isinstance(href, str) or not isinstance(content_type, str):
        raise ValueError("a reference has an address and a content type")
    return Reference(href, content_type)
