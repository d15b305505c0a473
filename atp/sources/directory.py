"""A source that reads the files in a directory. It follows no links below the directory."""

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
from ..store.values import CursorMove, Note
from ..tailers.models import MAX_SHARD
from .base import NAMED, Reader, Record, Source, to_datetime

# Finding, identifying and opening files below a directory.
#
# Anyone who may write to a directory can replace a folder in it with a link to another place, at
# any time between two calls that take a path. So this module opens each folder relative to the
# open folder above it: an open descriptor keeps pointing to the same folder.

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# O_NONBLOCK: otherwise opening a pipe would wait for a writer.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
# The errors if a name has become a link, a file, or something that cannot be opened.
_REFUSED = (errno.ELOOP, errno.ENOTDIR, errno.ENXIO)
# Folders are searched down to this depth.
MAX_DEPTH = 100
# The size of each of the three parts of a file that a sample covers, in bytes.
PART = 64 * 2**10
UNKNOWN = "?"
# The maximum number of cursors that one transaction moves without a record.
PORTION = 500


class FileRefused(OSError):
    """A path below a directory leads through a link, or no longer to the expected file."""


class TooDeep(OSError):
    """A folder contains folders that are nested deeper than MAX_DEPTH."""


def open_below(directory: str | os.PathLike[str], path: str | os.PathLike[str]) -> BinaryIO:
    """Open a regular file below a directory for reading bytes, without following links below it.

    ``path`` is absolute, or relative to the directory. A handler should use this to open a path
    from its inputs: somebody may have replaced the file, or a folder above it, since the tailer
    read the directory. Raises FileRefused and other OSErrors such as FileNotFoundError, and
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
    with folder_above(root, parts) as above, refuse_links(parts):
        # Check the kind before opening: opening a device may have side effects.
        status = os.stat(parts[-1], dir_fd=above, follow_symlinks=False)
        if stat.S_ISREG(status.st_mode):
            file = os.open(parts[-1], _FILE, dir_fd=above)
            if stat.S_ISREG(os.fstat(file).st_mode):
                return file
            os.close(file)
    raise FileRefused(errno.EINVAL, "is not a regular file", "/".join(parts))


def open_folder(root: int, name: str) -> int:
    """Return a descriptor of a folder in an open folder. Raises OSError."""
    with refuse_links([name]):
        return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=root)


def open_root(path: str | os.PathLike[str]) -> int:
    """Return a descriptor of a directory; links in its own path are followed. Raises OSError."""
    return os.open(path, _FOLDER)


@contextmanager
def folder_above(root: int, parts: Sequence[str]) -> Iterator[int]:
    """Open the parent folder of a path below an open folder; yield its descriptor.

    Raises OSError.
    """
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
def refuse_links(parts: Sequence[str]) -> Iterator[None]:
    """Raise FileRefused if the block fails because a path has a link or cannot be opened."""
    try:
        yield
    except OSError as error:
        if error.errno not in _REFUSED:
            raise
        why = "is a link, or leads through one, or cannot be opened"
        raise FileRefused(error.errno, why, "/".join(parts)) from None


def last_change(folder: int, depth: int = 0) -> float:
    """Return the time of the last change inside an open folder, in seconds. Raises OSError."""
    if depth > MAX_DEPTH:
        raise TooDeep(errno.ELOOP, "has too many folders within each other")
    last = os.fstat(folder).st_ctime
    folders = []
    with os.scandir(folder) as entries:
        for entry in entries:
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
    digest = blake2b(digest_size=8)
    if size <= 3 * PART:
        digest.update(os.pread(file, 3 * PART, 0))
    else:
        for begin in (0, (size - PART) // 2, size - PART):
            digest.update(os.pread(file, PART, begin))
    return digest.hexdigest()


# Python has no function for statx(), the system call that returns the time of creation.
_statx = getattr(ctypes.CDLL(None, use_errno=True), "statx", None)
_AT_SYMLINK_NOFOLLOW, _AT_EMPTY_PATH, _STATX_BTIME = 0x100, 0x1000, 0x800
_SIZE, _BIRTH = 256, struct.Struct("@qI")
_BIRTH_AT = 80


def birth(folder: int, name: str = "") -> str:
    """Return when a file was created, in nanoseconds; UNKNOWN if its file system does not say.

    Without ``name``, ``folder`` is the descriptor of the file itself. A file system may give a new
    file the inode number of a file that was just removed; the times of creation then differ.
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


# The source: each file that appears in the directory is a record.


class Identity(NamedTuple):
    """Distinguishes a file from other files of the same name, and from its own older versions.

    Times are in nanoseconds. ``birth`` and ``sample`` are UNKNOWN if they cannot be read. For a
    folder only ``inode`` and ``birth`` count, because later changes inside it make no new record.
    """

    size: int
    mtime: int
    ctime: int
    inode: int
    birth: str = UNKNOWN
    sample: str = UNKNOWN

    @classmethod
    def from_status(
        cls, status: os.stat_result, birth: str = UNKNOWN, sample: str = UNKNOWN
    ) -> Identity:
        times = (status.st_mtime_ns, status.st_ctime_ns)
        return cls(status.st_size, *times, status.st_ino, birth, sample)

    def position(self, *, is_folder: bool) -> str:
        """Return this identity as the position of a cursor."""
        return " ".join(map(str, self[3:5] if is_folder else self))

    def is_at(self, position: str, *, is_folder: bool) -> bool:
        """Return True if this is the file at the position, and its content has not changed.

        If an older version of ATP wrote the position, it may have fewer values.
        """
        if is_folder:
            inode, _, birth = position.partition(" ")
            return inode == str(self.inode) and _may_be_equal(birth or UNKNOWN, self.birth)
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
        # Either its mode, its owner or its links changed; or it was replaced or rewritten with
        # the old mtime, as cp -p, rsync -t and tar do.
        if UNKNOWN in (birth, self.birth):
            is_other = inode != str(self.inode)
        else:
            is_other = birth != self.birth
        return not is_other and _may_be_equal(sample, self.sample)


@dataclass(frozen=True, kw_only=True)
class FileRecord(Record):
    """A file or a folder in a directory; ``shard`` is its path below the directory."""

    path: Path

    def open(self) -> BinaryIO:
        """Open the file for reading bytes, without following links below the directory.

        Raises FileRefused if the file was changed or replaced since the tailer read the
        directory, and other OSErrors such as FileNotFoundError.
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
        now = Identity.from_status(status, birth(file), sample(file, status.st_size))
        if not now.is_at(self.position, is_folder=False):
            why = "was changed or replaced since it was read from the directory"
            raise FileRefused(errno.ESTALE, why, str(self.path))


class Directory(Source):
    """A source that reads each file below a directory that matches a pattern, once.

    ``pattern`` is a pattern for names, such as ``*.tif``. If ``folders`` is true, the records are
    folders instead of files, such as ``*.SAFE``. If ``recursive`` is true, the folders below are
    searched, too. A file becomes a record when nothing has changed it for ``quiet`` seconds; if it
    is changed or replaced later, it becomes a new record. Names that begin with a dot, symbolic
    links, pipes, sockets and devices are not records.

    A tailer remembers each file while it exists, and for a week longer. It neither moves nor
    removes files. Raises InvalidType.
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
                f"{position!r} is not a position of a file. Copy one from the list of cursors, "
                "or forget the cursor so that the file is read again."
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
            raise ValueError(f"{shard!r} is not a path below {self.path}")
        values = {"position": packed["position"], "time": packed["time"]}
        return FileRecord(shard=shard, path=self.path / shard, **values)


class _Candidate(NamedTuple):
    """A new or changed file that may become a record, with its identity at the scan."""

    shard: str
    identity: Identity


class _Reader(Reader):
    """One scan of the directory. ``read()`` then identifies the candidates that the scan found.

    Each name is looked up in an open folder, so that the scan finds nothing outside the directory
    even while somebody replaces folders with links.
    """

    def __init__(self, source: Directory, root: int, positions: Mapping[str, str]) -> None:
        self._source, self._root = source, root
        self._positions = dict(positions)
        self._matches = re.compile(translate(source.pattern)).match
        self._seen: set[str] = set()
        # Names that are skipped: those that no cursor can hold, those that cannot be read, and
        # those that are neither files nor folders.
        self._unusable: list[str] = []
        self._unreadable: list[str] = []
        self._special: list[str] = []
        # The shards of the records that are not committed, and the number of files that somebody
        # is still changing.
        self._uncommitted: set[str] = set()
        self._changing = 0
        # New positions for cursors of files that are unchanged, but whose positions differ.
        self._renewed: dict[str, str] = {}
        new: list[_Candidate] = []
        old: list[_Candidate] = []
        for shard, status, birth in self._walk(root, ""):
            self._seen.add(shard)
            self._sort(_Candidate(shard, Identity.from_status(status, birth)), new, old)
        new.sort(key=lambda each: (each.identity.mtime, each.shard))
        self._uncommitted = {each.shard for each in new}
        # read() pops from the end.
        self._unread = [*reversed(old), *reversed(new)]

    def _walk(self, folder: int, above: str) -> Iterator[tuple[str, os.stat_result, str]]:
        """Yield the path, status and birth of each file (or folder) that matches the pattern.

        Raises OSError.
        """
        folders = []
        with os.scandir(folder) as entries:
            for entry in entries:
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
                continue  # it was removed or replaced
            except PermissionError:
                self._unreadable.append(above + name)
                continue
            try:
                yield from self._walk(below, f"{above}{name}/")
            finally:
                os.close(below)

    def _status(self, entry: os.DirEntry[str], shard: str) -> os.stat_result | None:
        """Return the status of an entry that is a record or has to be searched; None for others."""
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
            self._special.append(shard)
        return None

    def _sort(self, candidate: _Candidate, new: list[_Candidate], old: list[_Candidate]) -> None:
        """Add a candidate to ``new``, or to ``old`` if an older version of ATP wrote its cursor.

        An unchanged file is added to neither, and so is a file that somebody is still changing.
        """
        shard, identity = candidate
        position = self._positions.get(shard)
        if position is not None:
            if self._source.folders:
                is_known = position == identity.position(is_folder=True)
            else:
                times = f"{identity.mtime} {identity.ctime}"
                is_known = position.startswith(f"{identity.size} {times} ")
            if is_known:
                return
            if " " not in position and identity.is_at(position, is_folder=self._source.folders):
                old.append(candidate)
                return
        if self._is_quiet(candidate):
            new.append(candidate)

    def _is_quiet(self, candidate: _Candidate) -> bool:
        """Return True if nobody is changing the file; otherwise count it, or list it as unreadable.

        A folder counts as quiet when everything inside it is quiet.
        """
        try:
            changed = candidate.identity.ctime / 10**9
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
        while self._unread and len(records) < limit and len(self._renewed) < PORTION:
            candidate = self._unread.pop()
            shard = candidate.shard
            now = self._identify(candidate)
            if now is None:
                self._uncommitted.discard(shard)
                continue
            position = now.position(is_folder=self._source.folders)
            before = self._positions.get(shard)
            if before is not None and now.is_at(before, is_folder=self._source.folders):
                self._uncommitted.discard(shard)
                if position != before:
                    self._renewed[shard] = position
                continue
            at, path = to_datetime(now.mtime / 10**9), self._source.path / shard
            records.append(FileRecord(shard=shard, position=position, time=at, path=path))
        return records

    def _identify(self, candidate: _Candidate) -> Identity | None:
        """Return the present identity of a candidate; None if it was removed or changed.

        Only this method opens a file, because it needs to read the sample.
        """
        shard, scanned = candidate
        try:
            if self._source.folders:
                opened = self._open_folder(shard)
            else:
                opened = open_file(self._root, shard.split("/"))
        except PermissionError:
            # The folder is readable but the file is not: the handler has to deal with that.
            return scanned
        except FileNotFoundError:
            self._seen.discard(shard)
            return None
        except FileRefused:
            self._changing += 1
            return None
        try:
            status = os.fstat(opened)
            if self._source.folders:
                now = Identity.from_status(status, birth(opened))
                is_same = now[3:5] == scanned[3:5]
            else:
                now = Identity.from_status(status, birth(opened), sample(opened, status.st_size))
                after = Identity.from_status(os.fstat(opened))
                is_same = now[:4] == scanned[:4] == after[:4]
        finally:
            os.close(opened)
        if not is_same:
            self._changing += 1
            return None
        return now

    def jumps(self) -> Sequence[CursorMove]:
        return [
            CursorMove(shard=shard, before=self._positions[shard], after=position)
            for shard, position in self._renewed.items()
        ]

    def jumped(self) -> None:
        self._positions |= self._renewed
        self._renewed = {}

    def moves(self, records: Sequence[Record]) -> Sequence[CursorMove]:
        return [
            CursorMove(
                shard=record.shard, before=self._positions.get(record.shard), after=record.position
            )
            for record in records
        ]

    def settled(self, records: Sequence[Record]) -> None:
        self._uncommitted -= {record.shard for record in records}

    def behind(self) -> int:
        return len(self._uncommitted) + self._changing + len(self._unusable)

    def missing(self) -> tuple[Collection[str], Collection[str]]:
        known = self._positions.keys()
        return known - self._seen, known & self._seen

    def notes(self) -> Sequence[Note]:
        notes = []
        if self._unusable:
            notes.append(
                _skipped_note(
                    self._unusable,
                    "names cannot be kept, because they are not UTF-8 or longer than "
                    f"{MAX_SHARD} characters",
                )
            )
        if self._unreadable:
            notes.append(_skipped_note(self._unreadable, "cannot be read"))
        if self._special:
            why = "are symbolic links, pipes, sockets or devices"
            notes.append(_skipped_note(self._special, why))
        return notes


def _skipped_note(names: Sequence[str], why: str) -> Note:
    some = ", ".join(ascii(name) for name in names[:NAMED])
    return Note(kind="skipped", count=len(names), message=f"{len(names)} {why}: {some}")


def _may_be_equal(one: str, other: str) -> bool:
    return one == other or UNKNOWN in (one, other)


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
