"""Values as they stand in a statement.

To adapt one takes the driver three times as long as to write it down here.
"""


def literal(value):
    """Return what stands for a value in a statement; None of one that the driver has to adapt.

    Between dollars nothing means anything else, however the session reads backslashes.
    """
    kind = type(value)
    if kind is str:
        if value.isalnum():
            return f"'{value}'"
        # The driver refuses the character that no text has.
        return None if "$" in value or "\0" in value else f"$atp${value}$atp$"
    if value is None:
        return "NULL"
    return repr(value).lower() if kind is int or kind is bool else None
