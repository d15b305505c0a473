"""Sources: where the records of tailers come from."""

from ..store.values import CursorMove
from .base import Gap, Reader, Record, Source
from .directory import Directory, FileRecord
from .kafka import Kafka
from .redis_stream import RedisStream, StreamRecord
from .table import RowRecord, Table

__all__ = [
    "CursorMove",
    "Directory",
    "FileRecord",
    "Gap",
    "Kafka",
    "Reader",
    "Record",
    "RedisStream",
    "RowRecord",
    "Source",
    "StreamRecord",
    "Table",
]
