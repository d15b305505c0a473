"""The server's error codes, and the ATP error for one of them."""

from django.db import DatabaseError

from ....exceptions import NotSerializable

_UNTRANSLATABLE_CHARACTER = "22P05"


def has_code(error: BaseException, code: str) -> bool:
    """Return whether the server gave an error this code, whatever the driver is."""
    of_driver = error.__cause__ if isinstance(error, DatabaseError) else error
    return code in (getattr(of_driver, "sqlstate", None), getattr(of_driver, "pgcode", None))


def refuse_characters(error: DatabaseError) -> None:
    """Raise NotSerializable if the database's encoding lacks a character of the data.

    Only a database without UTF-8 lacks one; the check atp.W017 reports that.
    """
    if has_code(error, _UNTRANSLATABLE_CHARACTER):
        said = str(error).partition("\n")[0]
        raise NotSerializable(f"The queue's database lacks a character: {said}.") from error
