"""Output: text or bytes that a handler returns with a content type."""

import re
from dataclasses import dataclass

# At most as long as its column; printable, since it is sent to browsers unchanged.
_CONTENT_TYPE = re.compile(r"(?=.{3,127}\Z)[\w!#$&^.+-]+/[\w!#$&^.+-]+(;[ -~]*)?", re.ASCII)


@dataclass(frozen=True)
class Output:
    """The return value of a handler that returns text or bytes with a content type.

    ``content`` is str or bytes. Without ``content_type`` text is
    ``text/plain`` and bytes are ``application/octet-stream``.
    """

    content: str | bytes
    content_type: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.content, (str, bytes, bytearray, memoryview)):
            raise TypeError(f"Output takes text or bytes, not {type(self.content).__name__}")
        if self.content_type:
            check_content_type(self.content_type)


def check_content_type(value: str) -> None:
    """Raise ValueError for text that is no content type."""
    if not _CONTENT_TYPE.fullmatch(value):
        raise ValueError(f"{value!r} is not a content type")
