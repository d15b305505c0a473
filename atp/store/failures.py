"""The causes of dead letters: from the facts of a failure to the key of its error group."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from hashlib import blake2b
from uuid import UUID

from .. import text as wording
from ..deadletters.models import MAX_TITLE
from ..models import Failure
from .values import Failed

# The version of the rules below and of those in daemon/worker/endings.py. Change it with
# them: a new version makes new groups.
VERSION = 1
_MAX_EXCEPTION = 255

# Causes of the loss of an attempt, as the detail of its LogRecord.
TIMEOUT, MEMORY = "time-out", "memory"
LOSSES = {TIMEOUT: "killed after time-out", MEMORY: "out of memory", "": "daemon lost"}

# The title of a failure without a message.
_SILENT = "without a message"

# The parts of a message that may differ between failures of one cause, replaced in this order.
_DIFFERING = [
    (re.compile(pattern), name)
    for pattern, name in (
        (r"\b[a-zA-Z][a-zA-Z0-9+.-]*://\S+", "<url>"),
        (r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+", "<mail>"),
        (r"\"[^\"\n]*\"|(?<!\w)'[^'\n]*'|`[^`\n]*`|«[^»\n]*»|“[^”\n]*”", "<text>"),
        (r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b", "<uuid>"),
        (
            r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?",
            "<date>",
        ),
        (r"\b0[xX][0-9a-fA-F]+\b|\b(?=[a-fA-F]*\d)[0-9a-fA-F]{8,}\b", "<hex>"),
        (r"[+-]?\d+(?:[.,:]\d+)*(?:[eE][+-]?\d+)?", "<number>"),
    )
]


def plain(message: str) -> str:
    """Return the first line of a message, with all parts replaced that differ between failures."""
    text = next((line.strip() for line in message.splitlines() if line.strip()), "")[:2000]
    for pattern, name in _DIFFERING:
        text = pattern.sub(name, text)
    return text


def failed(type: str, parts: Iterable[str], *, exception: str = "", title: str = "") -> Failed:
    """Return the cause of a failure; ``parts`` are the texts that tell one cause from another."""
    fingerprint = blake2b(_joined(parts), digest_size=16).digest()
    named = blake2b(_joined((type, str(VERSION), fingerprint.hex())), digest_size=8).digest()
    # A positive integer of 63 bits, which fits the columns of both databases.
    group = int.from_bytes(named) >> 1
    return Failed(
        group, type, fingerprint, VERSION, exception[:_MAX_EXCEPTION], _line(title or exception)
    )


def _joined(parts: Iterable[str]) -> bytes:
    return b"\0".join(part.encode("utf-8", "replace") for part in parts)


def _line(text: str) -> str:
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    clean = first.replace("\x00", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()
    return wording.shorten(clean, MAX_TITLE)


def of_loss(type: str, cause: str) -> Failed:
    """Return the cause of a STALE Instance; ``cause`` is the cause of its last loss.

    It is the detail of the last expiry: a key of :data:`LOSSES`, or how the worker died.
    """
    title = LOSSES.get(cause) or f"worker died: {cause}"
    return failed(type, ("loss", title), exception="atp.exceptions.Stale", title=title)


def of_message(type: str, detail: str, message: str) -> Failed:
    """Return the cause of a dead letter from its LogRecord, if nothing else is known of it.

    ``detail`` is the class of an exception.
    """
    line = wording.headline(message)
    return failed(
        type, ("message", detail, plain(line)), exception=detail, title=line or detail or _SILENT
    )


def failure(uuid: UUID, failed: Failed, time: datetime) -> Failure:
    """Return an unsaved row of Failure, which a maintenance job counts later."""
    return Failure(instance=uuid, time=time, **failed._asdict())
