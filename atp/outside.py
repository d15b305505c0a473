"""Requests to addresses that clients have named: only to hosts that the project allows.

A client could name an address inside the project's own network, which only its hosts can reach. So
``ATP["OGC_HOSTS"]`` lists what may be reached, and a name that resolves to a private address is
refused: the connection goes to the address that was looked at, and the name is not resolved again.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Any
from urllib.parse import SplitResult, urljoin, urlsplit

from . import __version__
from .conf import settings

# In seconds: for each part of an answer.
TIMEOUT = 10.0
# At most so many redirects are followed.
MOST_REDIRECTS = 5
# In seconds: the delays before a message is sent again to a server that has not taken it.
RETRIES = (10, 60, 300, 1800, 3600, 10800, 25200, 43200)
_REDIRECTS = (301, 302, 303, 307, 308)
_PORTS = {"http": 80, "https": 443}
_PIECE = 64 * 1024
# Addresses of this network stand for those of IPv4.
_NAT64 = IPv6Network("64:ff9b::/96")


class Refused(Exception):
    """An address may not be reached; the message says why."""


class Failed(Exception):
    """A request has failed, and may do better later."""


def check(address: str) -> SplitResult:
    """Return the parts of an address that may be reached, as far as its name tells. Raises Refused.

    An entry of OGC_HOSTS with a scheme is an origin that the project trusts, such as
    ``http://localhost:8000``. Any other is a pattern for names of public hosts, on https.
    """
    try:
        url = urlsplit(address)
        port = url.port or _PORTS.get(url.scheme)
    except ValueError:
        raise Refused(f"{address!r} is no address.") from None
    if url.scheme not in _PORTS or not url.hostname:
        raise Refused(f"{address!r} is no address that begins with https.")
    if url.username is not None or url.password is not None:
        raise Refused("The address has a user or a password.")
    if _is_trusted(url):
        return url
    if url.scheme != "https" or port != _PORTS["https"]:
        raise Refused(f"{url.hostname} may be reached by https alone, at its usual port.")
    if not any(fnmatchcase(url.hostname, each.lower()) for each in settings.OGC_HOSTS):
        raise Refused(f"The host {url.hostname} is not one that this service may reach.")
    return url


def _is_trusted(url: SplitResult) -> bool:
    return f"{url.scheme}://{url.netloc}" in settings.OGC_HOSTS


def post(address: str, body: bytes, content_type: str) -> int:
    """Send a body, and return the status of the answer. Raises Refused, Failed."""
    with _request("POST", check(address), body, {"Content-Type": content_type}) as answer:
        return answer.status


def fetch(address: str, *, most: int, seconds: float) -> tuple[bytes, str]:
    """Return what is at an address, of at most so many bytes, and its content type.

    Redirects are followed to hosts that may be reached. Raises Refused, Failed.
    """
    deadline = time.monotonic() + seconds
    for _ in range(MOST_REDIRECTS + 1):
        with _request("GET", check(address), None, {"Accept-Encoding": "identity"}) as answer:
            if answer.status not in _REDIRECTS:
                if not 200 <= answer.status < 300:
                    kind = Failed if answer.status in (429, 503) else Refused
                    raise kind(f"{urlsplit(address).hostname} answered {answer.status}.")
                body = _read(answer, most, deadline)
                return body, answer.headers.get("Content-Type", "")
            address = urljoin(address, answer.headers.get("Location", ""))
    raise Refused(f"{urlsplit(address).hostname} redirects more than {MOST_REDIRECTS} times.")


def _read(answer: http.client.HTTPResponse, most: int, deadline: float) -> bytes:
    body = bytearray()
    while piece := answer.read1(_PIECE):
        body += piece
        if len(body) > most:
            raise Refused(f"What is there is larger than {most:,} bytes.")
        if time.monotonic() > deadline:
            raise Failed("It takes too long to fetch.")
    if answer.length:
        raise Failed("The connection was closed before the end.")
    return bytes(body)


@contextmanager
def _request(
    method: str, url: SplitResult, body: bytes | None, headers: Mapping[str, str]
) -> Iterator[http.client.HTTPResponse]:
    connection: Any = _CONNECTIONS[url.scheme](str(url.hostname), url.port, timeout=TIMEOUT)
    connection.is_trusted = _is_trusted(url)
    path = f"{url.path or '/'}{'?' if url.query else ''}{url.query}"
    own = {"User-Agent": f"django-atp/{__version__}", "Connection": "close"}
    try:
        connection.request(method, path, body, {**own, **headers})
        with connection.getresponse() as answer:
            yield answer
    except TimeoutError:
        raise Failed(f"{url.hostname} did not answer for {TIMEOUT:g} s.") from None
    except (OSError, http.client.HTTPException, UnicodeError) as error:
        raise Failed(f"{url.hostname} cannot be reached: {error}") from None
    finally:
        connection.close()


def _connected(host: str, port: int, *, is_trusted: bool) -> socket.socket:
    """Return a socket that is connected to a host. Raises Refused, OSError."""
    failed: OSError = OSError("it has no address")
    for _, _, _, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        if not is_trusted and not is_public(str(address[0])):
            raise Refused(f"The host {host} has a private address.")
        try:
            return socket.create_connection((str(address[0]), port), TIMEOUT)
        except OSError as error:
            failed = error
    raise failed


def is_public(text: str) -> bool:
    """Return True if an IP address, or what it stands for, is one of the whole internet."""
    address: IPv4Address | IPv6Address = ip_address(text.partition("%")[0])
    if isinstance(address, IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if address in _NAT64:
            inner = IPv4Address(int(address) & 0xFFFFFFFF)
        if address.teredo is not None:
            return False
        if inner is not None:
            address = inner
    return address.is_global and not address.is_multicast


class _HTTPConnection(http.client.HTTPConnection):
    is_trusted = False

    def connect(self) -> None:
        self.sock = _connected(self.host, self.port, is_trusted=self.is_trusted)


class _HTTPSConnection(http.client.HTTPSConnection):
    is_trusted = False

    def connect(self) -> None:
        plain = _connected(self.host, self.port, is_trusted=self.is_trusted)
        context = ssl.create_default_context()
        self.sock = context.wrap_socket(plain, server_hostname=self.host)


_CONNECTIONS = {"http": _HTTPConnection, "https": _HTTPSConnection}
