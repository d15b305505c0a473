"""The statements of this store: one a file, in the folder ``sql``."""

from functools import cache
from importlib.resources import files


@cache
def statement(name):
    """Return the statement of this name, without its comments."""
    text = files(__package__).joinpath("sql", f"{name}.sql").read_text()
    lines = (line.partition("--")[0].rstrip() for line in text.splitlines())
    return "\n".join(line for line in lines if line)
