"""What SQLite answers to each function that `common/base.py` names. Its database is a file."""

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

from django.db.backends.base.base import BaseDatabaseWrapper

from ..common.base import (
    as_guest,
    end_session,
    kept_type,
    log_position,
    now,
    open_transactions,
    sessions,
)

__all__ = [
    "as_guest",
    "end_session",
    "file_id",
    "kept_type",
    "lock_folder",
    "log_position",
    "now",
    "open_transactions",
    "sessions",
]


def lock_folder(connection: BaseDatabaseWrapper) -> Path:
    # All processes find the same folder, whatever links they follow to the file.
    return Path(f"{_path(connection).resolve()}-atpd")


def file_id(connection: BaseDatabaseWrapper) -> tuple[int, ...]:
    try:
        found = os.stat(_path(connection))
    except OSError:
        return ()
    return found.st_dev, found.st_ino


def _path(connection: BaseDatabaseWrapper) -> Path:
    """Return the path of the database's file, whose name may be a URI."""
    name = str(connection.settings_dict["NAME"])
    return Path(unquote(urlsplit(name).path) if name.startswith("file:") else name)
