"""Signed messages between a daemon and the hosts on which an engine runs its attempts.

Both ends belong to the same project, so both know its SECRET_KEY. Each message is signed with its
number and a key for this connection and direction: nobody else can send a message, and nobody can
replay one. Messages are not encrypted.
"""

import hashlib
import hmac
import io
import pickle
import secrets
import socket
import struct
from collections.abc import Iterator
from typing import Any, Self

from django.utils.crypto import salted_hmac

# The number of random bytes with which each end begins, and of a signature.
_NONCE, _SIGNATURE = 16, 32
# The head of a message: its length, and its signature.
_HEAD = struct.Struct(f"!I{_SIGNATURE}s")
# The longest message, in bytes, and the most that is read in one go.
LONGEST, _PIECE = 64 * 1024 * 1024, 256 * 1024
# The longest first message, which comes from a stranger.
_FIRST = 64 * 1024
# The modules whose classes a message may contain, and the other classes. All others are refused,
# since a pickle can name any class to be called.
_MODULES = (
    "atp.daemon.protocol",
    "atp.daemon.outcomes",
    "atp.store.values",
    "atp.executors.ticket",
)
_CLASSES = {
    ("datetime", "datetime"),
    ("datetime", "timedelta"),
    ("datetime", "timezone"),
    ("uuid", "UUID"),
}


class Forged(Exception):
    """Bytes are not a message that this project has signed."""


class Cut(Exception):
    """The other end is closed, or cannot be reached."""


class _Messages(pickle.Unpickler):
    """The reader of pickles that contain only messages."""

    def find_class(self, module: str, name: str) -> Any:
        if (module in _MODULES and "." not in name) or (module, name) in _CLASSES:
            found = super().find_class(module, name)
            if isinstance(found, type) and found.__module__ == module:
                return found
        raise Forged(f"a message wants {module}.{name}")


def _loaded(body: bytes) -> Any:
    """Return the message in a pickle. Raises Forged, also if another version of ATP has made it."""
    try:
        return _Messages(io.BytesIO(body)).load()
    except Forged:
        raise
    except Exception as error:
        raise Forged(f"a message cannot be read: {type(error).__name__}: {error}") from None


class Wire:
    """One end of a connection: the daemon's if ``is_server`` is True, else the keeper's."""

    def __init__(self, link: socket.socket, *, is_server: bool) -> None:
        link.setblocking(False)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if link.family in (socket.AF_INET, socket.AF_INET6):
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._link = link
        self._is_server = is_server
        self._own = secrets.token_bytes(_NONCE)
        self._keys: tuple[bytes, bytes] | None = None
        self._sent = self._received = 0
        self._in = bytearray()
        self._out = bytearray(self._own)
        # The messages that were to be sent before the other end has answered.
        self._early: list[object] = []

    @classmethod
    def connect(cls, address: tuple[str, int]) -> Self:
        """Begin to connect to a daemon; messages to it wait meanwhile. Raises Cut."""
        try:
            family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
            link = socket.socket(family)
            link.setblocking(False)
            link.connect_ex(address)
            return cls(link, is_server=False)
        except OSError as error:
            raise Cut(str(error)) from None

    @property
    def is_open(self) -> bool:
        """True if the other end has answered."""
        return self._keys is not None

    def fileno(self) -> int:
        return self._link.fileno()

    @property
    def waits(self) -> bool:
        """True if something could not be sent yet."""
        return bool(self._out)

    def close(self) -> None:
        self._link.close()

    def send(self, message: object) -> None:
        """Sign and send a message; :meth:`flush` sends what does not go out now. Raises Cut."""
        if self._keys is None:
            self._early.append(message)
        else:
            self._add(message)
        self.flush()

    def _add(self, message: object) -> None:
        assert self._keys is not None
        body = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
        self._out += _HEAD.pack(len(body), _sign(self._keys[0], self._sent, body)) + body
        self._sent += 1

    def flush(self) -> None:
        """Send what waits, as far as the connection accepts it. Raises Cut."""
        try:
            while self._out:
                del self._out[: self._link.send(self._out)]
        except BlockingIOError:
            pass
        except OSError as error:
            raise Cut(str(error)) from None

    def receive(self) -> Iterator[Any]:
        """Yield each message that has come. Raises Cut and Forged."""
        is_cut = self._read()
        if self._keys is None and len(self._in) >= _NONCE:
            self._begin(bytes(self._in[:_NONCE]))
            del self._in[:_NONCE]
        while self._keys is not None and len(self._in) >= _HEAD.size:
            length, signature = _HEAD.unpack_from(self._in)
            if length > (LONGEST if self._received else _FIRST):
                raise Forged(f"a message of {length} bytes")
            if len(self._in) < _HEAD.size + length:
                break
            body = bytes(self._in[_HEAD.size : _HEAD.size + length])
            if not hmac.compare_digest(_sign(self._keys[1], self._received, body), signature):
                raise Forged("the signature of a message is wrong")
            self._received += 1
            del self._in[: _HEAD.size + length]
            yield _loaded(body)
        if is_cut:
            raise Cut("the other end has closed the connection")

    def _read(self) -> bool:
        """Read what has come; return whether the other end is closed. Raises Cut."""
        try:
            piece = self._link.recv(_PIECE)
            self._in += piece
            return not piece
        except BlockingIOError:
            return False
        except OSError as error:
            raise Cut(str(error)) from None

    def _begin(self, theirs: bytes) -> None:
        """Make the keys for both directions, and send the messages that wait. Raises Cut."""
        server, client = (self._own, theirs) if self._is_server else (theirs, self._own)
        keys = [
            salted_hmac(f"atp.executors.{end}", server + client, algorithm="sha256").digest()
            for end in ("server", "client")
        ]
        own, others = keys if self._is_server else keys[::-1]
        self._keys = own, others
        early, self._early = self._early, []
        for message in early:
            self._add(message)
        self.flush()


def _sign(key: bytes, number: int, body: bytes) -> bytes:
    return hmac.digest(key, number.to_bytes(8) + body, hashlib.sha256)
