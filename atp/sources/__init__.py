"""Sources: where the records of tailers come from."""

from ..store.values import CursorMove
from .base import Reader, Record, Source
from .directory import Directory, FileRecord
from .table import RowRecord, Table

__all__ = [
    "CursorMove",
    "Directory",
    "FileRecord",
    "Reader",
    "Record",
    "RowRecord",
    "Source",
    "Table",
]
