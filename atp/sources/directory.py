"""Files that appear in a directory, opened where no link leads elsewhere."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import stat
import struct
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import translate
from hashlib import blake2b
from pathlib import Path, PurePath
from typing import Any, BinaryIO, NamedTuple

from ..exceptions import InvalidType
from ..store.values.steps import CursorMove, Note
from ..tailers.models import MAX_SHARD
from .base import NAMED, Reader, Record, Source, instant

# Finding, identifying and opening files below a directory, where no link leads elsewhere.
#
# Whoever may write into a directory may replace one of its folders by a link to another place,
# between any two calls that name a path. So each folder is opened in the one above it, and what is
# open stays what it was.

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


# A directory: each file that appears in it is a record.

# The number of cursors that are moved without a record in one transaction.
PORTION = 500


class Identity(NamedTuple):
    """What tells one file from another one of its name, and from an older state of it.

    Times are in nanoseconds. ``birth`` and ``sample`` are UNKNOWN if they cannot be found out. Of a
    folder only ``inode`` and ``birth`` count, as what changes in it later makes no new record.
    """

    size: int
    mtime: int
    ctime: int
    inode: int
    birth: str = UNKNOWN
    sample: str = UNKNOWN

    @classmethod
    def of(cls, status: os.stat_result, birth: str = UNKNOWN, sample: str = UNKNOWN) -> Identity:
        times = (status.st_mtime_ns, status.st_ctime_ns)
        return cls(status.st_size, *times, status.st_ino, birth, sample)

    def position(self, *, is_folder: bool) -> str:
        """Return it as the position of a cursor."""
        return " ".join(map(str, self[3:5] if is_folder else self))

    def is_at(self, position: str, *, is_folder: bool) -> bool:
        """Whether this is the file that was recorded, and its content is as it was then.

        A position may have been written by an older version, with less in it.
        """
        if is_folder:
            inode, _, birth = position.partition(" ")
            return inode == str(self.inode) and _may_equal(birth or UNKNOWN, self.birth)
        if position == f"{self.size}-{self.mtime}":
            return True
        try:
            size, mtime, ctime, inode, birth, sample = position.split(" ")
        except ValueError:
            return False
        if (size, mtime) != (str(self.size), str(self.mtime)):
            return False
        if ctime == str(self.ctime):
            return True
        # Its mode, its owner or its links may have changed, or it was replaced, or written anew
        # with the time that it had: as by cp -p, rsync -t and tar.
        if UNKNOWN in (birth, self.birth):
            is_other = inode != str(self.inode)
        else:
            is_other = birth != self.birth
        return not is_other and _may_equal(sample, self.sample)


@dataclass(frozen=True, kw_only=True)
class FileRecord(Record):
    """A file, or a folder, of a directory; ``shard`` is its path below the directory."""

    path: Path

    def open(self) -> BinaryIO:
        """Open the file to read bytes; follow no link below the directory.

        Raises FileRefused if something else has taken the place of the file that was recorded;
        FileNotFoundError and the like.
        """
        parts = Path(self.shard or self.path.name).parts
        root = open_root(self.path.parents[len(parts) - 1])
        try:
            file = os.fdopen(open_file(root, parts), "rb")
        finally:
            os.close(root)
        try:
            if self.position:
                self._check(file.fileno())
        except BaseException:
            file.close()
            raise
        return file

    def _check(self, file: int) -> None:
        status = os.fstat(file)
        found = Identity.of(status, birth(file), sample(file, status.st_size))
        if not found.is_at(self.position, is_folder=False):
            why = "was changed or replaced since it was read from the directory"
            raise FileRefused(errno.ESTALE, why, str(self.path))


class Directory(Source):
    """The files below a directory that match a pattern, each of them once.

    ``pattern`` is a pattern of names, as ``*.tif``. With ``folders`` the records are folders
    instead of files, as ``*.SAFE``. With ``recursive`` the directories below are looked through,
    too. A file is a record when nothing has changed it for ``quiet`` seconds; if it is changed
    or replaced afterwards, it is a new record. Names that begin with a dot, symbolic links, pipes,
    sockets and devices are no records.

    A tailer remembers each file as long as it is there, and for a week longer. It neither moves
    nor removes files. Raises InvalidType.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        pattern: str = "*",
        folders: bool = False,
        recursive: bool = False,
        quiet: float = 2.0,
    ) -> None:
        if not os.fspath(path) or not Path(path).is_absolute():
            raise InvalidType(f"Directory({os.fspath(path)!r}): must be an absolute path.")
        if not pattern or "/" in pattern:
            raise InvalidType(f"Directory(pattern={pattern!r}): must be a pattern of names.")
        if quiet < 0:
            raise InvalidType(f"Directory(quiet={quiet!r}): must be 0 or more seconds.")
        self.path, self.pattern = Path(path), pattern
        self.folders, self.recursive, self.quiet = folders, recursive, quiet

    def __str__(self) -> str:
        return str(self.path / ("**" if self.recursive else "") / self.pattern)

    def check_position(self, position: str) -> None:
        if not position[:1].isdigit() or not position.isascii():
            raise ValueError(
                f"{position!r} is no state of a file: copy one from the list of cursors, or forget "
                "the cursor, so that the file is read again."
            )

    @contextmanager
    def open(self, positions: Mapping[str, str]) -> Iterator[Reader]:
        root = open_root(self.path)
        try:
            yield _Reader(self, root, positions)
        finally:
            os.close(root)

    def pack(self, record: Record) -> dict[str, Any]:
        return {"path": record.shard, "position": record.position, "time": record.time}

    def unpack(self, packed: Mapping[str, Any]) -> FileRecord:
        shard = packed["path"]
        if shard.startswith("/") or ".." in shard.split("/"):
            raise ValueError(f"{shard!r} is no path below {self.path}")
        given = {"position": packed["position"], "time": packed["time"]}
        return FileRecord(shard=shard, path=self.path / shard, **given)


class _Candidate(NamedTuple):
    """A file that may be a record: the look has found it new, or changed."""

    shard: str
    found: Identity


class _Reader(Reader):
    """One look at the directory; what it has found is identified when it is read.

    Each name is looked up in an open folder, so that nothing outside of the directory is found
    while somebody replaces folders by links.
    """

    def __init__(self, source: Directory, root: int, positions: Mapping[str, str]) -> None:
        self._source, self._root = source, root
        self._positions = dict(positions)
        self._matches = re.compile(translate(source.pattern)).match
        self._seen: set[str] = set()
        # Names that are passed over: those that no cursor can keep, those that cannot be read, and
        # those that are neither files nor folders.
        self._unusable: list[str] = []
        self._unreadable: list[str] = []
        self._odd: list[str] = []
        # The shards of the records that are not settled, and the number of those that change.
        self._left: set[str] = set()
        self._changing = 0
        # Cursors of files that are as they were, but for what their positions tell besides.
        self._touched: dict[str, str] = {}
        new: list[_Candidate] = []
        old: list[_Candidate] = []
        for shard, status, birth in self._walk(root, ""):
            self._seen.add(shard)
            self._sort(_Candidate(shard, Identity.of(status, birth)), new, old)
        new.sort(key=lambda each: (each.found.mtime, each.shard))
        self._left = {each.shard for each in new}
        # The last one is read first.
        self._found = [*reversed(old), *reversed(new)]

    def _walk(self, folder: int, above: str) -> Iterator[tuple[str, os.stat_result, str]]:
        """Yield the files, or folders, that match the pattern. Raises OSError."""
        folders = []
        with os.scandir(folder) as found:
            for entry in found:
                shard = above + entry.name
                status = self._status(entry, shard)
                if status is None:
                    continue
                if not stat.S_ISDIR(status.st_mode):
                    yield shard, status, UNKNOWN
                elif self._source.folders and self._matches(entry.name):
                    yield shard, status, birth(folder, entry.name)
                else:
                    folders.append(entry.name)
        for name in folders:
            try:
                below = open_folder(folder, name)
            except (FileNotFoundError, FileRefused):
                continue  # it is gone, or something else has taken its place
            except PermissionError:
                self._unreadable.append(above + name)
                continue
            try:
                yield from self._walk(below, f"{above}{name}/")
            finally:
                os.close(below)

    def _status(self, entry: os.DirEntry[str], shard: str) -> os.stat_result | None:
        """Return the status of an entry that is a record, or is looked through; else None."""
        if entry.name.startswith("."):
            return None
        is_match = self._matches(entry.name) is not None
        is_folder = entry.is_dir(follow_symlinks=False)
        if is_folder:
            is_wanted = self._source.recursive or (is_match and self._source.folders)
        else:
            is_file = entry.is_file(follow_symlinks=False)
            is_wanted = is_match and not (is_file and self._source.folders)
        if not is_wanted:
            return None
        if len(shard) > MAX_SHARD or not _is_text(shard):
            self._unusable.append(shard)
            return None
        try:
            status = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            return None
        kind = stat.S_IFMT(status.st_mode)
        if kind == (stat.S_IFDIR if is_folder else stat.S_IFREG):
            return status
        if kind not in (stat.S_IFDIR, stat.S_IFREG):
            self._odd.append(shard)
        return None

    def _sort(self, candidate: _Candidate, new: list[_Candidate], old: list[_Candidate]) -> None:
        """Add a file to those that are new, or to those whose cursors are of an older version."""
        shard, found = candidate
        position = self._positions.get(shard)
        if position is not None:
            if self._source.folders:
                is_known = position == found.position(is_folder=True)
            else:
                is_known = position.startswith(f"{found.size} {found.mtime} {found.ctime} ")
            if is_known:
                return
            if " " not in position and found.is_at(position, is_folder=self._source.folders):
                old.append(candidate)
                return
        if self._is_quiet(candidate):
            new.append(candidate)

    def _is_quiet(self, candidate: _Candidate) -> bool:
        """Whether nothing changes it any more; counts it otherwise, or notes it as unreadable."""
        try:
            changed = candidate.found.ctime / 10**9
            if self._source.folders:
                changed = self._last_change(candidate.shard)
        except (PermissionError, TooDeep):
            self._unreadable.append(candidate.shard)
            return False
        except (FileNotFoundError, FileRefused):
            changed = time.time()
        if time.time() - changed < self._source.quiet:
            self._changing += 1
            return False
        return True

    def _last_change(self, shard: str) -> float:
        folder = self._open_folder(shard)
        try:
            return last_change(folder)
        finally:
            os.close(folder)

    def _open_folder(self, shard: str) -> int:
        parts = shard.split("/")
        with folder_above(self._root, parts) as above:
            return open_folder(above, parts[-1])

    def read(self, limit: int) -> Sequence[Record]:
        records: list[Record] = []
        while self._found and len(records) < limit and len(self._touched) < PORTION:
            candidate = self._found.pop()
            shard = candidate.shard
            now = self._identify(candidate)
            if now is None:
                self._left.discard(shard)
                continue
            position = now.position(is_folder=self._source.folders)
            before = self._positions.get(shard)
            if before is not None and now.is_at(before, is_folder=self._source.folders):
                self._left.discard(shard)
                if position != before:
                    self._touched[shard] = position
                continue
            at, path = instant(now.mtime / 10**9), self._source.path / shard
            records.append(FileRecord(shard=shard, position=position, time=at, path=path))
        return records

    def _identify(self, candidate: _Candidate) -> Identity | None:
        """Return what a candidate is now; None if it is gone, or has changed since the look."""
        shard, found = candidate
        try:
            if self._source.folders:
                opened = self._open_folder(shard)
            else:
                opened = open_file(self._root, shard.split("/"))
        except PermissionError:
            # Its folder may be read, but the file itself may not: that is its handler's concern.
            return found
        except FileNotFoundError:
            self._seen.discard(shard)
            return None
        except FileRefused:
            self._changing += 1
            return None
        try:
            status = os.fstat(opened)
            if self._source.folders:
                now = Identity.of(status, birth(opened))
                is_same = now[3:5] == found[3:5]
            else:
                now = Identity.of(status, birth(opened), sample(opened, status.st_size))
                is_same = now[:4] == found[:4] == Identity.of(os.fstat(opened))[:4]
        finally:
            os.close(opened)
        if not is_same:
            self._changing += 1
            return None
        return now

    def jumps(self) -> Sequence[CursorMove]:
        return [
            CursorMove(shard=shard, before=self._positions[shard], after=position)
            for shard, position in self._touched.items()
        ]

    def jumped(self) -> None:
        self._positions |= self._touched
        self._touched = {}

    def moves(self, records: Sequence[Record]) -> Sequence[CursorMove]:
        return [
            CursorMove(
                shard=record.shard, before=self._positions.get(record.shard), after=record.position
            )
            for record in records
        ]

    def settled(self, records: Sequence[Record]) -> None:
        self._left -= {record.shard for record in records}

    def behind(self) -> int:
        return len(self._left) + self._changing + len(self._unusable)

    def missing(self) -> tuple[Collection[str], Collection[str]]:
        known = self._positions.keys()
        return known - self._seen, known & self._seen

    def notes(self) -> Sequence[Note]:
        found = []
        if self._unusable:
            found.append(
                _skipped(
                    self._unusable,
                    "names cannot be kept, as they are not UTF-8 or longer than "
                    f"{MAX_SHARD} characters",
                )
            )
        if self._unreadable:
            found.append(_skipped(self._unreadable, "cannot be read"))
        if self._odd:
            found.append(_skipped(self._odd, "are symbolic links, pipes, sockets or devices"))
        return found


def _skipped(names: Sequence[str], why: str) -> Note:
    named = ", ".join(ascii(name) for name in names[:NAMED])
    return Note(kind="skipped", count=len(names), message=f"{len(names)} {why}: {named}")


def _may_equal(one: str, other: str) -> bool:
    return one == other or UNKNOWN in (one, other)


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
