"""The response of a finished attempt."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class ResponseData:
    """The output of a finished attempt. ``data`` is None where it is stored as ``file``."""

    content_type: str
    data: bytes | None
    file: str = ""
    size: int = 0
