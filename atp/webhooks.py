"""The Type `atp.webhook`: signed requests (Standard Webhooks) to the targets of the settings."""

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
from .conf import InvalidSetting, Target, settings, target_of, target_problems
from .exceptions import Fatal, Retry, read
from .fields import time_of
from .operations.hooks import hooks_of
from .operations.registry import Pattern, declared_hooks
from .store import get_store
from .text import did_you_mean

# Webhooks: telling other systems how Instances ended, by signed requests (Standard Webhooks).

__all__ = ["webhook"]


# Sending: one request to a target, without redirects.

# In seconds: for the connection, and for each part of the answer.
TIMEOUT = 10.0
# In seconds: for all of it. A target may answer a byte at a time.
WITHIN = 30.0
# In bytes: the longest head of an answer, together with the interim answers before it.
MOST = 1 << 20
# A target asks by these answers to be left alone for a while.
_BUSY = (429, 503)
_PORTS = {"http": 80, "https": 443}
_STATUS_LINE = re.compile(rb"HTTP/\d\.\d +(\d{3})(?: +(.*))?")


class NotDelivered(Retry):
    """A target did not accept a message; a retry sends it again, ``after`` seconds at least."""


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


class Answer(NamedTuple):
    """The head of an answer: its status, its reason phrase, and its Retry-After, "" if none."""

    status: int
    reason: str
    retry_after: str

    def __str__(self) -> str:
        return f"{self.status} {self.reason}".strip()


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


def send(target: Target, id: str, body: bytes, now: datetime) -> int:
    """Send a body to a target and return the status of its answer, a 2xx.

    ``now`` is the time of sending by the database's clock. Raises NotDelivered, or Fatal if the
    target answers that it wants no more messages (410).
    """
    signed = headers(id, int(now.timestamp()), body, target.keys)
    message = Message(target.name, {"content-type": "application/json", **signed}, body)
    if _outboxes:
        _outboxes[-1].append(message)
        return 204
    answer = _exchanged(target, message)
    if 200 <= answer.status < 300:
        return answer.status
    if answer.status == 410:
        raise Fatal(f"{target.name} answered {answer}: it wants no more")
    refusal = f"{target.name} answered {answer}"
    if answer.status not in _BUSY:
        raise NotDelivered(refusal)
    asked = read(answer.retry_after, now)
    raise NotDelivered(f"{refusal} ({asked.told})" if asked.told else refusal, after=asked.after)


def _exchanged(target: Target, message: Message) -> Answer:
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
        raise NotDelivered(f"{target.name} {state}: {_why(error)}") from None


class _Connection:
    """A connection to a target. None of its methods goes on after the deadline.

    Each call of the socket gets a part of the time that is left, so a target that sends a byte now
    and then cannot prolong it. The block closes the socket.
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
        given = {} if proxy is None else _authorization(proxy)
        if url.scheme == "http":
            return _Place(path if proxy is None else f"http://{_ascii(url)}{path}", url, given)
        if proxy is not None:
            self._pass_through(host, port, given)
        self._encrypt(host)
        return _Place(path, url, {})

    def post(self, place: _Place, message: Message) -> Answer:
        """Send a message, and return the answer to it. Raises OSError, ValueError."""
        given = {
            "host": _ascii(place.url),
            "user-agent": f"django-atp/{__version__}",
            "content-length": str(len(message.body)),
            "connection": "close",
            **place.headers,
            **message.headers,
        }
        # A target that refuses a message may answer before it has read the message.
        with suppress(ConnectionError):
            self._send(_head(f"POST {place.path}", given) + message.body)
        return self._answer()

    def _connect(self, host: str, port: int) -> None:
        failed: OSError | None = None
        for family, kind, protocol, _, address in _addresses(host, port, self._time()):
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

    def _pass_through(self, host: str, port: int, given: dict[str, str]) -> None:
        """Ask the proxy for a connection to a host."""
        name = host.encode("idna").decode("ascii") if ":" not in host else f"[{host}]"
        place = f"{name}:{port}"
        self._send(_head(f"CONNECT {place}", {"host": place, **given}))
        answer = self._answer()
        if not 200 <= answer.status < 300:
            raise OSError(f"its proxy answered {answer}")

    def _encrypt(self, host: str) -> None:
        context = ssl.create_default_context()
        context.set_alpn_protocols(["http/1.1"])
        # The handshake as a whole has the time-out of the socket.
        self._socket = context.wrap_socket(self._timed(), server_hostname=host)

    def _send(self, data: bytes) -> None:
        unsent = memoryview(data)
        while unsent:
            unsent = unsent[self._timed().send(unsent) :]

    def _answer(self) -> Answer:
        """Return the head of the answer; interim answers before it are passed over.

        Nothing needs the body, so it is not read.
        """
        while True:
            line = self._line()
            match = _STATUS_LINE.fullmatch(line)
            if match is None:
                raise ValueError("its answer is not one of HTTP/1.1")
            retry_after = ""
            while line := self._line():
                name, _, value = line.partition(b":")
                if name.lower() == b"retry-after":
                    retry_after = retry_after or value.decode("latin-1").strip()
            status = int(match[1])
            # 101 is final: the target would go on in another protocol.
            if not 100 <= status < 200 or status == 101:
                return Answer(status, _shown(match[2] or b""), retry_after)

    def _line(self) -> bytes:
        looked = 0
        while (end := self._unread.find(b"\n", looked)) < 0:
            looked = len(self._unread)
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
        """Return the socket, with the time-out of its next call. Raises TimeoutError."""
        assert self._socket is not None
        self._socket.settimeout(self._time())
        return self._socket

    def _time(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return min(TIMEOUT, left)


class _Place(NamedTuple):
    """The target of a request: its path as the other side of the connection needs it."""

    path: str
    url: SplitResult
    headers: dict[str, str]


# The lookups that have not ended, by host and port.
_lookups: dict[tuple[str, int], Future[list[Any]]] = {}
_lock = threading.Lock()


def _addresses(host: str, port: int, within: float) -> list[Any]:
    """Return the addresses of a host. Raises OSError, and TimeoutError after ``within`` seconds.

    Nothing can interrupt the resolver, so it works in a thread. Whoever asks for the same host
    meanwhile waits for the same thread: there is never more than one for each host.
    """
    key = host, port
    with _lock:
        lookup = _lookups.get(key)
        if lookup is None:
            lookup = _lookups[key] = Future()
            name = "atp-webhook-lookup"
            threading.Thread(target=_look_up, args=(key, lookup), name=name, daemon=True).start()
    return lookup.result(within)


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
    """Return the proxy that the environment names for an address. Raises ValueError."""
    named = getproxies().get(url.scheme)
    if not named or proxy_bypass(url.netloc):
        return None
    proxy = urlsplit(named if "://" in named else f"http://{named}")
    if proxy.scheme not in _PORTS or not proxy.hostname:
        raise ValueError("the proxy that the environment names is not one of HTTP")
    return proxy


def _authorization(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    user = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"proxy-authorization": f"Basic {base64.b64encode(user.encode()).decode()}"}


def _head(request: str, given: dict[str, str]) -> bytes:
    lines = [f"{request} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items()), "", ""]
    return "\r\n".join(lines).encode("ascii")


def _ascii(url: SplitResult) -> str:
    """Return the host of an address, and its port if it names one, in ASCII."""
    return url.netloc if url.netloc.isascii() else url.netloc.encode("idna").decode("ascii")


def _shown(reason: bytes) -> str:
    text = reason.decode("latin-1")[:100]
    return "".join(each for each in text if each.isprintable()).strip()


def _why(error: BaseException) -> str:
    """Return the reason in words, without the address: a certificate's error may name the host."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused (OpenSSL's verify code {error.verify_code})"
    if isinstance(error, UnicodeError):
        return "its host is not a valid name"  # the error would name the host
    return str(error) or type(error).__name__


# Signing: the headers of the Standard Webhooks, version 1.0.0.


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


# The Type ``atp.webhook``: a hook that tells a target of the setting WEBHOOKS.

MINUTE, HOUR = 60, 3600
# Eight retries: the first soon, the last about a day after the end.
RETRIES = (10, MINUTE, 5 * MINUTE, 30 * MINUTE, HOUR, 3 * HOUR, 7 * HOUR, 12 * HOUR)


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
    """Tell a target how an Instance ended. All retries send the same id of the message.

    An Instance may have no identifier. ``collection`` is None if an older version enqueued this.
    """
    data = {"uuid": uuid, "type": type, "state": state, "reason": reason}
    more = {"identifier": identifier, "collection": collection}
    message = {
        "type": f"atp.instance.{state.lower()}",
        "timestamp": time_of(context.uuid).isoformat(timespec="milliseconds"),
        "data": data | {name: value for name, value in more.items() if value is not None},
    }
    body = json.dumps(message, separators=(",", ":")).encode()
    to = target_named(target)
    try:
        # A receiver refuses a message whose time is not about now: this host's clock may be wrong.
        status = send(to, str(context.uuid), body, get_store().now())
    except NotDelivered as error:
        # A target that asks for a pause gets no request earlier, and no more requests than others.
        if (
            error.after is not None
            and error.after <= RETRIES[min(context.retries, len(RETRIES) - 1)]
        ):
            error.after = None
        raise
    context.log(f"{target} answered {status}")
    return {"status": status}


def target_named(name: str) -> Target:
    """Return the target with this name. Raises Fatal if the setting has none; InvalidSetting."""
    given = settings.WEBHOOKS
    if name not in given:
        raise Fatal(f"ATP['WEBHOOKS'] has no target {name!r}.{did_you_mean(name, given)}")
    return _target(name)


def _target(name: str) -> Target:
    given = settings.WEBHOOKS[name]
    for problem in target_problems({name: given}):
        raise InvalidSetting(problem)
    return target_of(name, given)


def _patterns() -> Iterator[Pattern]:
    """Yield the patterns of the setting, each with the hook that tells its target."""
    for name in settings.WEBHOOKS:
        for on, pattern in _target(name).patterns:
            setting = f"ATP['WEBHOOKS'][{name!r}]"
            [spec] = hooks_of(setting, on, (webhook, {"target": name}))
            yield pattern, replace(spec, setting=setting)


declared_hooks.add_source(_patterns)
