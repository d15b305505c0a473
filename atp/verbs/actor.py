"""The actor of a verb (``by``): who acts and through which channel, as text for the log."""

from ..exceptions import InvalidOption
from ..words.options import MAX_IDENTIFIER


def check_by(by: object) -> None:
    """Check that ``by`` is text that the log can store. Raises InvalidOption."""
    if not isinstance(by, str):
        raise InvalidOption(f"by={by!r}: must be text, who acts and through which channel.")
    if len(by) > MAX_IDENTIFIER or "\x00" in by:
        raise InvalidOption(f"by: must be text of at most {MAX_IDENTIFIER} characters.")
    try:
        by.encode()
    except UnicodeEncodeError:
        raise InvalidOption(f"by={by!r}: half of a surrogate pair is no text.") from None
