"""A directory: each file that appears in it is a record."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from ..exceptions import InvalidType
from ..rows.tailers.cursor import MAX_SHARD
from ..store.values import CursorMove
from .base import Reader, Record, Source
from .parameters import instant

# The number of names that a note lists.
NAMED = 5


@dataclass(frozen=True, kw_only=True)
class FileRecord(Record):
    """A file, or a folder, of a directory; ``shard`` is its path below the directory."""

    path: Path


class Directory(Source):
    """The files below a directory that match a pattern, each of them once.

    ``pattern`` is a pattern of names, as ``*.tif``. With ``folders`` the records are folders
    instead of files, as ``*.SAFE``. With ``recursive`` the directories below are looked through,
    too. A file is a record when nothing has changed it for ``quiet`` seconds; if it is changed
    afterwards, it is a new record. Names that begin with a dot, and symbolic links, are none.

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

    def open(self, positions: Mapping[str, str]) -> AbstractContextManager[Reader]:
        return nullcontext(_Reader(self, positions))

    def pack(self, record: Record) -> dict[str, Any]:
        return {"path": record.shard, "position": record.position, "time": record.time}

    def unpack(self, packed: Mapping[str, Any]) -> FileRecord:
        shard = packed["path"]
        if shard.startswith("/") or ".." in shard.split("/"):
            raise ValueError(f"{shard!r} is no path below {self.path}")
        given = {"position": packed["position"], "time": packed["time"]}
        return FileRecord(shard=shard, path=self.path / shard, **given)

    def entries(self, unreadable: list[str]) -> Iterator[os.DirEntry[str]]:
        """Yield the files, or folders, that match the pattern. Raises OSError.

        Directories below that cannot be read are added to ``unreadable``.
        """
        left = [self.path]
        while left:
            folder = left.pop()
            try:
                found = os.scandir(folder)
            except FileNotFoundError:
                if folder == self.path:
                    raise
                continue
            except PermissionError:
                if folder == self.path:
                    raise
                unreadable.append(str(folder.relative_to(self.path)))
                continue
            with found:
                for entry in found:
                    if entry.name.startswith(".") or entry.is_symlink():
                        continue
                    is_folder = entry.is_dir(follow_symlinks=False)
                    if is_folder == self.folders and fnmatchcase(entry.name, self.pattern):
                        yield entry
                    elif is_folder and self.recursive:
                        left.append(Path(entry.path))


class _Reader(Reader):
    def __init__(self, source: Directory, positions: Mapping[str, str]) -> None:
        self._source, self._positions = source, positions
        self._seen: set[str] = set()
        self._unusable: list[str] = []
        self._unreadable: list[str] = []
        # The shards of the records that are not settled, and the number of those that change.
        self._left: set[str] = set()
        self._changing = 0
        self._found = self._look()
        self._left = {record.shard for record in self._found}

    def read(self, limit: int) -> Sequence[Record]:
        found, self._found = self._found[:limit], self._found[limit:]
        return found

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

    def notes(self) -> Sequence[str]:
        found = []
        if self._unusable:
            found.append(
                f"{len(self._unusable)} names cannot be kept, as they are no UTF-8 or longer than "
                f"{MAX_SHARD} characters: {_named(self._unusable)}"
            )
        if self._unreadable:
            found.append(f"{len(self._unreadable)} cannot be read: {_named(self._unreadable)}")
        return found

    def _look(self) -> list[FileRecord]:
        """Return the records that are new, the oldest first. Raises OSError."""
        found: list[tuple[float, FileRecord]] = []
        for entry in self._source.entries(self._unreadable):
            shard = os.path.relpath(entry.path, self._source.path)
            if len(shard) > MAX_SHARD or not _is_text(shard):
                self._unusable.append(shard)
                continue
            self._seen.add(shard)
            try:
                found += self._records(entry, shard)
            except FileNotFoundError:
                self._seen.discard(shard)
            except PermissionError:
                self._unreadable.append(shard)
        return [record for _, record in sorted(found, key=lambda each: (each[0], each[1].shard))]

    def _records(self, entry: os.DirEntry[str], shard: str) -> Iterator[tuple[float, FileRecord]]:
        """Yield the record of an entry with its time, unless it is known or still changes."""
        status = entry.stat(follow_symlinks=False)
        if self._source.folders:
            position = str(status.st_ino)
        else:
            position = f"{status.st_size}-{status.st_mtime_ns}"
        if self._positions.get(shard) == position:
            return
        changed = _changed(entry.path) if self._source.folders else status.st_ctime
        if time.time() - changed < self._source.quiet:
            self._changing += 1
            return
        at, path = instant(status.st_mtime), Path(entry.path)
        yield status.st_mtime, FileRecord(shard=shard, position=position, time=at, path=path)


def _named(names: Sequence[str]) -> str:
    return ", ".join(ascii(name) for name in names[:NAMED])


def _changed(folder: str) -> float:
    """Return when something in a folder was changed last, in seconds since 1970."""
    last = os.lstat(folder).st_ctime
    for above, folders, files in os.walk(folder):
        for name in (*folders, *files):
            last = max(last, os.lstat(os.path.join(above, name)).st_ctime)
    return last


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
