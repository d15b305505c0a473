"""Arrays as text: what PostgreSQL reads a hundred values from at once.

A driver adapts a list element by element, which takes longer than all else
that a batch needs here; joining text does not.
"""


def array(values):
    """Return numbers as the text of an array; None is NULL."""
    return _joined(list(values), _plain)


def texts(values):
    """Return texts as the text of an array; None is NULL."""
    return _joined(list(values), _quoted)


def _joined(values, write):
    # Most columns of a batch have one value from the first row to the last.
    if values and values.count(values[0]) == len(values):
        written = [write(values[0])] * len(values)
    else:
        written = [write(value) for value in values]
    return f"{{{','.join(written)}}}"


def _plain(number):
    return "NULL" if number is None else repr(number)


def _quoted(text):
    if text is None:
        return "NULL"
    if text.isalnum() and text != "NULL":
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
