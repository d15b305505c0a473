"""The exceptions of ATP, as a traceback shows them."""

import pytest

from atp import exceptions

PUBLIC = [each for each in vars(exceptions).values() if isinstance(each, type)]


@pytest.mark.parametrize("kind", PUBLIC)
def test_a_traceback_shows_where_it_is_imported_from(kind):
    if issubclass(kind, BaseException):
        assert kind.__module__ == "atp.exceptions"
