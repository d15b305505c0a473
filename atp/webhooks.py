"""The Type `atp.webhook`, which sends signed messages (Standard Webhooks) to the targets.

The setting ``ATP["WEBHOOKS"]`` defines the targets.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import socket
import ssl
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from . import __version__
from .authoring.task_type import task_type
from .conf import InvalidSetting, WebhookTarget, settings, webhook_problems, webhook_target
from .exceptions import Fatal, Retry, read_retry_after
from .fields import uuid7_time
from .operations.hooks import hooks_of
from .operations.registry import Pattern, declared_hooks
from .store import get_store
from .text import did_you_mean

__all__ = ["webhook"]

# The time-out for the connection, and for each part of the answer, in seconds.
TIMEOUT = 10.0
# The time-out for the whole request, in seconds: a target may send its answer byte by byte.
WITHIN = 30.0
# The maximum size of an answer's head, with the interim answers before it, in bytes.
MOST = 1 << 20
MINUTE, HOUR = 60, 3600
# Eight retries: the first soon, the last about a day after the end.
RETRIES = (10, MINUTE, 5 * MINUTE, 30 * MINUTE, HOUR, 3 * HOUR, 7 * HOUR, 12 * HOUR)
# With these statuses a target asks for a pause.
_BUSY = (429, 503)
_PORTS = {"http": 80, "https": 443}
_STATUS_LINE = re.compile(rb"HTTP/\d\.\d +(\d{3})(?: +(.*))?")


# Sending one request to a target, without redirects.


class NotDelivered(Retry):
    """A target did not accept a message, so ATP sends the message again later.

    ``after`` is the delay that the target asks for, in seconds, or None.
    """


@dataclass(frozen=True)
class Message:
    """A signed message to a target: the name of the target, the headers, and the body."""

    target: str
    headers: dict[str, str]
    body: bytes

    def json(self) -> dict[str, Any]:
        """Return the body as a dictionary. docs/hooks.md describes its keys."""
        read: dict[str, Any] = json.loads(self.body)
        return read


class Answer(NamedTuple):
    """The head of an HTTP response: status, reason phrase, and Retry-After ("" if it has none)."""

    status: int
    reason: str
    retry_after: str

    def __str__(self) -> str:
        return f"{self.status} {self.reason}".strip()


# The lists in which tests collect messages, the innermost last. If there are any, ATP sends none.
_outboxes: list[list[Message]] = []


@contextmanager
def collect_messages(outbox: list[Message]) -> Iterator[None]:
    """Inside the block, append each message to a list instead of sending it.

    ATP treats each message as if its target had accepted it.
    """
    _outboxes.append(outbox)
    try:
        yield
    finally:
        _outboxes.pop()


def send(target: WebhookTarget, id: str, body: bytes, now: datetime) -> int:
    """Send a body to a target and return the status of its answer (2xx).

    ``now`` is the current time from the database's clock. Raises NotDelivered, or Fatal if the
    target answers that it wants no more messages (410).
    """
    signed = headers(id, int(now.timestamp()), body, target.keys)
    message = Message(target.name, {"content-type": "application/json", **signed}, body)
    if _outboxes:
        _outboxes[-1].append(message)
        return 204
    answer = _exchange(target, message)
    if 200 <= answer.status < 300:
        return answer.status
    if answer.status == 410:
        raise Fatal(f"{target.name} answered {answer}: it wants no more messages")
    refusal = f"{target.name} answered {answer}"
    if answer.status not in _BUSY:
        raise NotDelivered(refusal)
    pause = read_retry_after(answer.retry_after, now)
    raise NotDelivered(f"{refusal} ({pause.told})" if pause.told else refusal, after=pause.after)


def _exchange(target: WebhookTarget, message: Message) -> Answer:
    """Send a message and return the answer. Raises NotDelivered."""
    deadline = time.monotonic() + WITHIN
    state = "cannot be reached"
    try:
        with _Connection(deadline) as connection:
            place = connection.open(urlsplit(target.url))
            state = "did not answer"
            return connection.post(place, message)
    except TimeoutError:
        if time.monotonic() >= deadline:
            state, why = "did not answer", f"within {WITHIN:.0f} s"
        else:
            why = f"for {TIMEOUT:.0f} s"
        raise NotDelivered(f"{target.name} {state} {why}") from None
    except (OSError, ValueError) as error:
        raise NotDelivered(f"{target.name} {state}: {_describe_error(error)}") from None


class _Connection:
    """A connection to a target, as a context manager. All its methods end by the deadline.

    The time-out of each call of the socket is at most the remaining time, so that a target cannot
    keep the connection open longer by sending its answer byte by byte.
    """

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        self._socket: socket.socket | None = None
        self._unread = bytearray()
        self._received = 0

    def __enter__(self) -> _Connection:
        return self

    def __exit__(self, *raised: object) -> None:
        if self._socket is not None:
            self._socket.close()

    def open(self, url: SplitResult) -> _Place:
        """Connect to the host of an address, or to its proxy. Raises OSError, ValueError."""
        host, port = str(url.hostname), url.port or _PORTS[url.scheme]
        path = f"{url.path or '/'}{'?' if url.query else ''}{url.query}"
        proxy = _proxy_of(url)
        if proxy is None:
            self._connect(host, port)
        else:
            self._connect(str(proxy.hostname), proxy.port or _PORTS[proxy.scheme])
        authorization = {} if proxy is None else _authorization(proxy)
        if url.scheme == "http":
            full = path if proxy is None else f"http://{_ascii_host(url)}{path}"
            return _Place(full, url, authorization)
        if proxy is not None:
            self._open_tunnel(host, port, authorization)
        self._encrypt(host)
        return _Place(path, url, {})

    def post(self, place: _Place, message: Message) -> Answer:
        """Send a message, and return the answer. Raises OSError, ValueError."""
        fields = {
            "host": _ascii_host(place.url),
            "user-agent": f"django-atp/{__version__}",
            "content-length": str(len(message.body)),
            "connection": "close",
            **place.headers,
            **message.headers,
        }
        # A target that refuses a message may answer before it has read the message.
        with suppress(ConnectionError):
            self._send(_encode_head(f"POST {place.path}", fields) + message.body)
        return self._read_answer()

    def _connect(self, host: str, port: int) -> None:
        failed: OSError | None = None
        for family, kind, protocol, _, address in _find_addresses(host, port, self._remaining()):
            self._socket = socket.socket(family, kind, protocol)
            try:
                self._timed().connect(address)
            except OSError as error:
                self._socket.close()
                failed = error
            else:
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return
        raise failed or OSError("its host has no address")

    def _open_tunnel(self, host: str, port: int, authorization: dict[str, str]) -> None:
        """Ask the proxy for a tunnel to a host, with CONNECT. Raises OSError, ValueError."""
        name = host.encode("idna").decode("ascii") if ":" not in host else f"[{host}]"
        place = f"{name}:{port}"
        self._send(_encode_head(f"CONNECT {place}", {"host": place, **authorization}))
        answer = self._read_answer()
        if not 200 <= answer.status < 300:
            raise OSError(f"its proxy answered {answer}")

    def _encrypt(self, host: str) -> None:
        context = ssl.create_default_context()
        context.set_alpn_protocols(["http/1.1"])
        # The time-out of the socket is for the whole handshake.
        self._socket = context.wrap_socket(self._timed(), server_hostname=host)

    def _send(self, data: bytes) -> None:
        unsent = memoryview(data)
        while unsent:
            unsent = unsent[self._timed().send(unsent) :]

    def _read_answer(self) -> Answer:
        """Return the head of the answer, after any interim answers. The body is never read."""
        while True:
            line = self._read_line()
            match = _STATUS_LINE.fullmatch(line)
            if match is None:
                raise ValueError("its answer is not an HTTP/1.1 response")
            retry_after = ""
            while line := self._read_line():
                name, _, value = line.partition(b":")
                if name.lower() == b"retry-after":
                    retry_after = retry_after or value.decode("latin-1").strip()
            status = int(match[1])
            # 101 is final: the target would continue in another protocol.
            if not 100 <= status < 200 or status == 101:
                return Answer(status, _clean_reason(match[2] or b""), retry_after)

    def _read_line(self) -> bytes:
        start = 0
        while (end := self._unread.find(b"\n", start)) < 0:
            start = len(self._unread)
            if self._received > MOST:
                raise ValueError(f"the headers of its answer are larger than {MOST >> 20} MiB")
            part = self._timed().recv(1 << 16)
            if not part:
                raise ConnectionError("it closed the connection")
            self._received += len(part)
            self._unread += part
        line = bytes(self._unread[:end])
        del self._unread[: end + 1]
        return line.removesuffix(b"\r")

    def _timed(self) -> socket.socket:
        """Return the socket with the time-out for its next call. Raises TimeoutError."""
        assert self._socket is not None
        self._socket.settimeout(self._remaining())
        return self._socket

    def _remaining(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return min(TIMEOUT, left)


class _Place(NamedTuple):
    """The destination of a request: the path to send, the address, and headers for a proxy."""

    path: str
    url: SplitResult
    headers: dict[str, str]


# The DNS lookups that have not ended, by host and port.
_lookups: dict[tuple[str, int], Future[list[Any]]] = {}
_lock = threading.Lock()


def _find_addresses(host: str, port: int, timeout: float) -> list[Any]:
    """Return the addresses of a host. Raises OSError, and TimeoutError after ``timeout`` seconds.

    A DNS lookup cannot be interrupted, so it runs in a thread. Other callers with the same host and
    port wait for the same thread, so that there is never more than one for each host and port.
    """
    key = host, port
    with _lock:
        lookup = _lookups.get(key)
        if lookup is None:
            lookup = _lookups[key] = Future()
            name = "atp-webhook-lookup"
            threading.Thread(target=_look_up, args=(key, lookup), name=name, daemon=True).start()
    return lookup.result(timeout)


def _look_up(key: tuple[str, int], lookup: Future[list[Any]]) -> None:
    found: list[Any] = []
    failed: BaseException | None = None
    try:
        found = socket.getaddrinfo(*key, type=socket.SOCK_STREAM)
    except BaseException as error:
        failed = error
    with _lock:
        del _lookups[key]
    if failed is None:
        lookup.set_result(found)
    else:
        lookup.set_exception(failed)


def _proxy_of(url: SplitResult) -> SplitResult | None:
    """Return the proxy for a URL from the environment; None if there is none. Raises ValueError."""
    address = getproxies().get(url.scheme)
    if not address or proxy_bypass(url.netloc):
        return None
    proxy = urlsplit(address if "://" in address else f"http://{address}")
    if proxy.scheme not in _PORTS or not proxy.hostname:
        raise ValueError("the proxy that the environment names is not an HTTP proxy")
    return proxy


def _authorization(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    user = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"proxy-authorization": f"Basic {base64.b64encode(user.encode()).decode()}"}


def _encode_head(request: str, fields: dict[str, str]) -> bytes:
    lines = [f"{request} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
    return "\r\n".join(lines).encode("ascii")


def _ascii_host(url: SplitResult) -> str:
    """Return the host of an address in ASCII, with the port if the address has one."""
    return url.netloc if url.netloc.isascii() else url.netloc.encode("idna").decode("ascii")


def _clean_reason(reason: bytes) -> str:
    text = reason.decode("latin-1")[:100]
    return "".join(each for each in text if each.isprintable()).strip()


def _describe_error(error: BaseException) -> str:
    """Return an error in words, without the host, which an error about a certificate may name."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused (OpenSSL's verify code {error.verify_code})"
    if isinstance(error, UnicodeError):
        return "its host is not a valid name"  # the error would name the host
    return str(error) or type(error).__name__


# Signing: the headers of the Standard Webhooks, version 1.0.0.


def headers(id: str, timestamp: int, body: bytes, keys: Iterable[bytes]) -> dict[str, str]:
    """Return the headers that sign a body, by the specification of Standard Webhooks.

    ``id`` is the id of the message, and ``timestamp`` the time in seconds since the epoch. The
    headers have a signature with each of ``keys``, so that a receiver can change from one key to
    the next.
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


# The Type ``atp.webhook``: a hook that sends messages to a target from the setting WEBHOOKS.


@task_type("atp.webhook", timeout=60, max_restarts=8, max_retries=len(RETRIES), backoff=RETRIES)
def webhook(
    context: Any,
    *,
    target: str,
    uuid: str,
    type: str,
    state: str,
    reason: str,
    identifier: str | None = None,
    collection: str | None = None,
) -> dict[str, int]:
    """Send a target a message that an Instance has ended. All retries send the same message id.

    ``identifier`` is None if the Instance has none. ``collection`` is None if an older version of
    ATP enqueued the webhook.
    """
    data = {"uuid": uuid, "type": type, "state": state, "reason": reason}
    more = {"identifier": identifier, "collection": collection}
    message = {
        "type": f"atp.instance.{state.lower()}",
        "timestamp": uuid7_time(context.uuid).isoformat(timespec="milliseconds"),
        "data": data | {name: value for name, value in more.items() if value is not None},
    }
    body = json.dumps(message, separators=(",", ":")).encode()
    to = find_target(target)
    try:
        # A receiver refuses a message with a wrong time, and this host's clock may be wrong.
        status = send(to, str(context.uuid), body, get_store().now())
    except NotDelivered as error:
        # The pause that the target asks for counts only if it is longer than the usual delay.
        if (
            error.after is not None
            and error.after <= RETRIES[min(context.retries, len(RETRIES) - 1)]
        ):
            error.after = None
        raise
    context.log(f"{target} answered {status}")
    return {"status": status}


def find_target(name: str) -> WebhookTarget:
    """Return the target with this name. Raises InvalidSetting, or Fatal if it does not exist."""
    targets = settings.WEBHOOKS
    if name not in targets:
        raise Fatal(f"ATP['WEBHOOKS'] has no target {name!r}.{did_you_mean(name, targets)}")
    return _read_target(name)


def _read_target(name: str) -> WebhookTarget:
    value = settings.WEBHOOKS[name]
    for problem in webhook_problems({name: value}):
        raise InvalidSetting(problem)
    return webhook_target(name, value)


def _setting_patterns() -> Iterator[Pattern]:
    """Yield the patterns in ``ATP["WEBHOOKS"]``, each with the hook that notifies its target."""
    for name in settings.WEBHOOKS:
        for on, pattern in _read_target(name).patterns:
            setting = f"ATP['WEBHOOKS'][{name!r}]"
            [spec] = hooks_of(setting, on, (webhook, {"target": name}))
            yield pattern, replace(spec, setting=setting)


declared_hooks.add_source(_setting_patterns)
