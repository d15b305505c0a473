"""The sources from which tailers read records."""

from ..store.values import CursorMove, Note
from .base import Gap, Reader, Record, Source
from .directory import Directory, FileRecord, FileRefused, open_below
from .kafka import Kafka
from .redis_stream import RedisStream, StreamRecord
from .table import RowRecord, Table

__all__ = [
    "CursorMove",
    "Directory",
    "FileRecord",
    "FileRefused",
    "Gap",
    "Kafka",
    "Note",
    "Reader",
    "Record",
    "RedisStream",
    "RowRecord",
    "Source",
    "StreamRecord",
    "Table",
    "open_below",
]
