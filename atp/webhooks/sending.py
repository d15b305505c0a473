"""Sending: one request to a target, without redirects."""

import json
import ssl
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from .. import __version__
from ..conf.webhooks import Target
from ..exceptions import Fatal
from .signing import headers

# In seconds: for the connection, and for each part of the answer.
TIMEOUT = 10.0
# In seconds: for all of it. To find an address takes as long as the resolver likes, and a target
# may answer a byte at a time.
WITHIN = 30.0


class NotDelivered(Exception):
    """A target did not accept a message; a retry sends it again."""


@dataclass(frozen=True)
class Message:
    """A signed message to a target: the name of the target, the headers, and the body."""

    target: str
    headers: dict[str, str]
    body: bytes

    def json(self) -> dict[str, Any]:
        """Return the body as a dictionary: see docs/hooks.md."""
        read: dict[str, Any] = json.loads(self.body)
        return read


# The lists in which tests keep messages, the innermost last; messages are sent if there is none.
_outboxes: list[list[Message]] = []


@contextmanager
def kept_in(outbox: list[Message]) -> Iterator[None]:
    """Send nothing inside the block: each message is added to a list, as if it were accepted."""
    _outboxes.append(outbox)
    try:
        yield
    finally:
        _outboxes.pop()


class _Stay(HTTPRedirectHandler):
    """Follow no redirect: else the target could choose the address that this host connects to."""

    def redirect_request(self, *args: Any) -> None:
        return None


def send(target: Target, id: str, body: bytes) -> int:
    """Send a body to a target and return the status of its answer, a 2xx.

    Raises NotDelivered, or Fatal if the target answers that it wants no more messages (410). A
    request that takes too long is given up; its thread ends later.
    """
    signed = headers(id, int(time.time()), body, target.keys)
    message = Message(target.name, {"content-type": "application/json", **signed}, body)
    if _outboxes:
        _outboxes[-1].append(message)
        return 204
    answer: Future[int] = Future()

    def carry_out() -> None:
        try:
            answer.set_result(_sent(target, message))
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=carry_out, name="atp-webhook", daemon=True).start()
    try:
        return answer.result(WITHIN)
    except TimeoutError:
        raise NotDelivered(f"{target.name} did not answer within {WITHIN:.0f} s") from None


def _sent(target: Target, message: Message) -> int:
    given = {"user-agent": f"django-atp/{__version__}", **message.headers}
    # Its scheme is https, or http where the setting allows that.
    request = Request(target.url, data=message.body, headers=given, method="POST")  # noqa: S310
    try:
        with build_opener(_Stay).open(request, timeout=TIMEOUT) as answer:
            return int(answer.status)
    except HTTPError as error:
        error.close()
        if error.code == 410:
            raise Fatal(f"{target.name} answered 410 {error.reason}: it wants no more") from None
        raise NotDelivered(f"{target.name} answered {error.code} {error.reason}") from None
    except URLError as error:
        raise NotDelivered(f"{target.name} cannot be reached: {_why(error.reason)}") from None
    except (OSError, HTTPException) as error:
        raise NotDelivered(f"{target.name} did not answer: {_why(error)}") from None


def _why(error: BaseException | str) -> str:
    """Return the reason in words, without the address: a certificate's error may name the host."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused (OpenSSL's verify code {error.verify_code})"
    return str(error) or type(error).__name__
