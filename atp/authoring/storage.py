"""The files of an attempt in Django's storage: published files and large responses."""

import os
from contextlib import suppress
from pathlib import Path
from typing import IO
from uuid import UUID

from django.core.files import File
from django.core.files.base import ContentFile
from django.core.files.storage import storages

from ..conf import settings


def open_file(
    file: str | Path | bytes | bytearray | memoryview | IO[bytes], name: str | None = None
) -> tuple[str, File]:
    """Return a name, and Django's File of a path, of bytes or of a binary file object.

    ``name``, if given, replaces the file's own. Raises ValueError if there is no name.
    """
    if isinstance(file, (bytes, bytearray, memoryview)):
        opened: File = ContentFile(bytes(file))
    elif isinstance(file, (str, Path)):
        name = name or Path(file).name
        opened = File(Path(file).open("rb"))
    else:
        name = name or Path(getattr(file, "name", "") or "").name
        opened = File(file)
    if not name:
        raise ValueError("publish() needs a name for what is not a named file")
    return name, opened


def size_of(opened: File) -> int | None:
    """Return how many bytes are to be stored; None for a file in which nobody can seek.

    Django's own ``size`` is that of the file on the disk, without what was not flushed.
    """
    try:
        opened.seek(0, os.SEEK_END)
        size = int(opened.tell())
        opened.seek(0)
    except (AttributeError, OSError):
        return None
    return size


def storage_path(uuid: UUID, attempt: int, name: str) -> str:
    """Return the path of a file of an attempt in Django's storage."""
    return f"atp/{uuid}/{attempt}-{name}"


def store_file(path: str, content: File) -> str:
    """Store a file and return its path. A file that cannot be stored whole is removed."""
    storage = storages[settings.STORAGE]
    path = storage.get_available_name(path)
    try:
        return storage.save(path, content)
    except BaseException:
        # A second error, whatever storages raise, must not hide the first.
        with suppress(Exception):
            storage.delete(path)
        raise
