"""The shape of inputs: the names of their arguments, without the values."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """Live Instances of one Type whose inputs have the same shape, among those looked at.

    ``type`` is the key of the Type, ``keys`` are those of the Instances, ``since`` is when the
    first was enqueued. ``format`` is None if there are no Inputs. ``placed`` is the number of
    arguments by position, ``names`` are those of the others, sorted; None where they cannot be
    read without opening the inputs. ``has_results`` tells whether results of other nodes of a
    graph may stand in them.
    """

    type: int
    keys: tuple[int, ...]
    since: datetime | None
    format: str | None
    placed: int = 0
    names: tuple[str, ...] | None = None
    has_results: bool = False
