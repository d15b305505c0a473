"""Requests to addresses that clients have named: only to hosts that the project allows.

A client could name an address inside the project's network, which only the hosts of the project
reach. So ``ATP["OGC_HOSTS"]`` lists the hosts that may be reached, and a name that resolves to a
private address is refused. The connection goes to the address that was checked, because the name is
not resolved again.
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
from urllib.parse import SplitResult, quote, urljoin, urlsplit

from . import __version__
from .conf import settings
from .text import shorten

# In seconds: for each part of an answer.
TIMEOUT = 10.0
# The most redirects that are followed.
MOST_REDIRECTS = 5
# In seconds: the delays before a message is sent again to a server that has not taken it.
RETRIES = (10, 60, 300, 1800, 3600, 10800, 25200, 43200)
_REDIRECTS = (301, 302, 303, 307, 308)
# Other answers are final: the request would fail again.
_PASSING = frozenset((408, 425, 429, *range(500, 600)))
_PORTS = {"http": 80, "https": 443}
_PIECE = 64 * 1024
# What stays as it is in the path and the query of an address; the rest is quoted.
_UNQUOTED = "!#$%&'()*+,/:;=?@[]~"
# In characters, without the dot at the end.
_LONGEST_NAME = 253
# All public addresses of hosts are in this network, but for those that stand for IPv4 addresses.
_GLOBAL = IPv6Network("2000::/3")
# The last 32 bits of an address in this network are an IPv4 address.
_NAT64 = IPv6Network("64:ff9b::/96")
# So are those of an address with one of these numbers in front of them (ISATAP).
_ISATAP = (0x0000_5EFE, 0x0200_5EFE)


class Refused(Exception):
    """An address may not be reached; the message says why."""


class Failed(Exception):
    """A request has failed, and may do better later."""


def check(address: str) -> SplitResult:
    """Return the parts of an address whose name may be reached. Raises Refused.

    What the name resolves to is checked when a connection is made. An entry of OGC_HOSTS with a
    scheme is an origin that the project trusts, such as ``http://localhost:8000``. Any other is a
    pattern for names of public hosts, on https.
    """
    try:
        url = urlsplit(address)
        port = _PORTS.get(url.scheme) if url.port is None else url.port
    except ValueError:
        raise Refused(f"{shorten(address)!r} is not a valid address.") from None
    if url.scheme not in _PORTS or not url.hostname:
        raise Refused(f"{shorten(address)!r} must be an address that begins with https.")
    if not _is_possible(url.hostname):
        raise Refused(f"No host can have the name {shorten(url.hostname)!r}.")
    if url.username is not None or url.password is not None:
        raise Refused("The address has a user or a password.")
    if _is_trusted(url):
        return url
    if url.scheme != "https" or port != _PORTS["https"]:
        raise Refused(f"{url.hostname} may be reached by https alone, at its usual port.")
    if not any(fnmatchcase(url.hostname, each.lower()) for each in settings.OGC_HOSTS):
        raise Refused(f"The host {url.hostname} is not one that this service may reach.")
    return url


def _is_possible(name: str) -> bool:
    """Return True if a host can have a name, or if the name is an IP address."""
    if ":" in name:  # an address of IPv6, which urlsplit() has checked
        return True
    try:
        ascii_name = name.encode("idna").decode()
    except UnicodeError:  # an empty label, or one that is too long
        return False
    is_plain = all(char.isalnum() or char in "-._" for char in ascii_name)
    return is_plain and len(ascii_name.rstrip(".")) <= _LONGEST_NAME


def _is_trusted(url: SplitResult) -> bool:
    return f"{url.scheme}://{url.netloc}" in settings.OGC_HOSTS


def post(address: str, body: bytes, content_type: str) -> int:
    """Send a body, and return the status of the answer. Raises Refused, Failed."""
    with _request("POST", check(address), body, {"Content-Type": content_type}) as answer:
        return answer.status


def fetch(address: str, *, most: int, seconds: float) -> tuple[bytes, str]:
    """Return the bytes at an address, and their content type.

    Redirects are followed to hosts that may be reached. Raises Refused, also if there are more than
    ``most`` bytes. Raises Failed, also if it takes longer than ``seconds``.
    """
    deadline = time.monotonic() + seconds
    for _ in range(MOST_REDIRECTS + 1):
        with _request("GET", check(address), None, {"Accept-Encoding": "identity"}) as answer:
            if answer.status not in _REDIRECTS:
                if not 200 <= answer.status < 300:
                    kind = Failed if answer.status in _PASSING else Refused
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
    path = quote(f"{url.path or '/'}{'?' if url.query else ''}{url.query}", _UNQUOTED)
    own = {"User-Agent": f"django-atp/{__version__}", "Connection": "close"}
    try:
        connection.request(method, path, body, {**own, **headers})
        with connection.getresponse() as answer:
            yield answer
    except TimeoutError:
        raise Failed(f"{url.hostname} did not answer for {TIMEOUT:g} s.") from None
    except (OSError, http.client.HTTPException) as error:
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
    """Return True if an IP address is public, and so is the IPv4 address that it stands for."""
    address: IPv4Address | IPv6Address = ip_address(text.partition("%")[0])
    if isinstance(address, IPv4Address):
        return address.is_global and not address.is_multicast
    last = IPv4Address(int(address) & 0xFFFFFFFF)
    if address.ipv4_mapped is not None or address in _NAT64:
        return is_public(str(last))
    if address not in _GLOBAL or address.teredo is not None:
        return False
    if (int(address) >> 32) & 0xFFFFFFFF in _ISATAP and not is_public(str(last)):
        return False
    return is_public(str(address.sixtofour)) if address.sixtofour else address.is_global


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
