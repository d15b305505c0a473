"""Finding, identifying and opening files below a directory, where no link leads elsewhere.

Whoever may write into a directory may replace one of its folders by a link to another place,
between any two calls that name a path. So each folder is opened in the one above it, and what is
open stays what it was.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import PurePath
from typing import BinaryIO

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# O_NONBLOCK: opening a pipe would wait for somebody who writes into it.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
# What the system answers if a name has become a link, a file, or something that cannot be opened.
_ELSEWHERE = (errno.ELOOP, errno.ENOTDIR, errno.ENXIO)
# A folder is looked through to this depth.
MOST_DEEP = 100
# The size of each of the three parts of a file that are compared, in bytes.
PART = 64 * 2**10
UNKNOWN = "?"


class FileRefused(OSError):
    """A path below a directory leads through a link, or to something else than the file meant."""


class TooDeep(OSError):
    """A folder has more than MOST_DEEP folders within each other."""


def open_below(directory: str | os.PathLike[str], path: str | os.PathLike[str]) -> BinaryIO:
    """Open a regular file below a directory, to read bytes; follow no link below it.

    ``path`` is absolute, or relative to the directory. A handler that gets a path in its inputs
    opens it so: between the look of a tailer and the handler, somebody may have replaced the file,
    or a folder above it. Raises FileRefused, which is an OSError; FileNotFoundError and the like;
    ValueError if the path is not below the directory.
    """
    directory, path = os.fspath(directory), os.fspath(path)
    below = PurePath(path).relative_to(directory) if os.path.isabs(path) else PurePath(path)
    if not below.parts or ".." in below.parts:
        raise ValueError(f"{path!r} is not a path below {directory!r}")
    root = os.open(directory, _FOLDER)
    try:
        return os.fdopen(open_file(root, below.parts), "rb")
    finally:
        os.close(root)


def open_file(root: int, parts: Sequence[str]) -> int:
    """Return a descriptor of a regular file below an open folder. Raises OSError."""
    with folder_above(root, parts) as above, refusing(parts):
        # Devices are not opened to find out that they are.
        status = os.stat(parts[-1], dir_fd=above, follow_symlinks=False)
        if stat.S_ISREG(status.st_mode):
            file = os.open(parts[-1], _FILE, dir_fd=above)
            if stat.S_ISREG(os.fstat(file).st_mode):
                return file
            os.close(file)
    raise FileRefused(errno.EINVAL, "is not a regular file", "/".join(parts))


def open_folder(root: int, name: str) -> int:
    """Return a descriptor of a folder in an open folder. Raises OSError."""
    with refusing([name]):
        return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=root)


def open_root(path: str | os.PathLike[str]) -> int:
    """Return a descriptor of a directory; links in its own path are followed. Raises OSError."""
    return os.open(path, _FOLDER)


@contextmanager
def folder_above(root: int, parts: Sequence[str]) -> Iterator[int]:
    """Open the folder above a path below an open folder. Raises OSError."""
    above = os.dup(root)
    try:
        for name in parts[:-1]:
            below = open_folder(above, name)
            os.close(above)
            above = below
        yield above
    finally:
        os.close(above)


@contextmanager
def refusing(parts: Sequence[str]) -> Iterator[None]:
    """Raise FileRefused if a name has become a link, or cannot be opened."""
    try:
        yield
    except OSError as error:
        if error.errno not in _ELSEWHERE:
            raise
        why = "is a link, or leads through one, or cannot be opened"
        raise FileRefused(error.errno, why, "/".join(parts)) from None


def last_change(folder: int, depth: int = 0) -> float:
    """Return when something in an open folder was changed last, in seconds. Raises OSError."""
    if depth > MOST_DEEP:
        raise TooDeep(errno.ELOOP, "has too many folders within each other")
    last = os.fstat(folder).st_ctime
    folders = []
    with os.scandir(folder) as found:
        for entry in found:
            status = entry.stat(follow_symlinks=False)
            last = max(last, status.st_ctime)
            if stat.S_ISDIR(status.st_mode):
                folders.append(entry.name)
    for name in folders:
        below = open_folder(folder, name)
        try:
            last = max(last, last_change(below, depth + 1))
        finally:
            os.close(below)
    return last


def sample(file: int, size: int) -> str:
    """Return a digest of the beginning, the middle and the end of an open file. Raises OSError."""
    found = blake2b(digest_size=8)
    if size <= 3 * PART:
        found.update(os.pread(file, 3 * PART, 0))
    else:
        for begin in (0, (size - PART) // 2, size - PART):
            found.update(os.pread(file, PART, begin))
    return found.hexdigest()


# Python has no function for the system call that tells when a file was made.
_statx = getattr(ctypes.CDLL(None, use_errno=True), "statx", None)
_AT_SYMLINK_NOFOLLOW, _AT_EMPTY_PATH, _STATX_BTIME = 0x100, 0x1000, 0x800
_SIZE, _BIRTH = 256, struct.Struct("@qI")
_BIRTH_AT = 80


def birth(folder: int, name: str = "") -> str:
    """Return when a file was made, in nanoseconds, or UNKNOWN if its file system does not tell.

    Without a name it is that of the descriptor itself. A file system may give a new file the
    inode number of one that was just removed; their births differ.
    """
    if _statx is None:
        return UNKNOWN
    answer = ctypes.create_string_buffer(_SIZE)
    flags = _AT_SYMLINK_NOFOLLOW if name else _AT_EMPTY_PATH
    if _statx(folder, os.fsencode(name), flags, _STATX_BTIME, answer) != 0:
        return UNKNOWN
    [mask] = struct.unpack_from("@I", answer)
    if not mask & _STATX_BTIME:
        return UNKNOWN
    seconds, nanoseconds = _BIRTH.unpack_from(answer, _BIRTH_AT)
    return str(seconds * 10**9 + nanoseconds)
