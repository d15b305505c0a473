"""Arrays as text: what PostgreSQL reads a hundred values from at once.

A driver adapts a list element by element, which takes longer than all else
that a batch needs here; joining text does not.
"""


def array(values):
    """Return numbers as the text of an array; None is NULL."""
    # With a plus what is a number by another name, as an IntEnum, becomes the number.
    return f"{{{','.join(['NULL' if value is None else repr(+value) for value in values])}}}"


def texts(values):
    """Return texts as the text of an array; None is NULL."""
    return f"{{{','.join([_quoted(value) for value in values])}}}"


def _quoted(text):
    if text is None:
        return "NULL"
    # Unquoted, NULL is none at all, in whatever case.
    if text.isalnum() and (len(text) != 4 or text.upper() != "NULL"):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
