"""Cut texts so that they fit into their boxes."""

from __future__ import annotations

from itertools import accumulate
from unicodedata import east_asian_width


def fitted(text: str, room: int) -> str:
    """Cut text in its middle to ``room`` letters: the ends of names tell them apart.

    A wide letter of East Asia takes the room of two.
    """
    if _room(text) <= room:
        return text
    left, right = room // 2, room - room // 2 - 1
    return f"{_first(text, left)}…{_first(text[::-1], right)[::-1]}"


def begun(text: str, room: int) -> str:
    """Cut a list as text after one of its entries: the first entries matter most."""
    entries = text.split(", ")
    while len(entries) > 1 and _room(text) > room:
        entries.pop()
        text = ", ".join([*entries, "…"])
    return text


def _room(text: str) -> int:
    return sum(1 + (east_asian_width(letter) in "WF") for letter in text)


def _first(text: str, room: int) -> str:
    taken = accumulate(map(_room, text))
    return text[: sum(count <= room for count in taken)]
