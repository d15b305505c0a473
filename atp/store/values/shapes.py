"""The shape of inputs: the names of their arguments, without the values."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """Live Instances of one Type whose inputs have the same shape.

    ``type`` is the key of the Type, and ``keys`` are those of the Instances. ``since`` is the time
    when the first one was enqueued. ``format`` is None without Inputs. ``placed`` is the number of
    positional arguments. ``names`` are the sorted names of the others; None if they cannot be read
    without opening the inputs. ``has_results`` tells whether results of other nodes of a graph may
    be in the inputs.
    """

    type: int
    keys: tuple[int, ...]
    since: datetime | None
    format: str | None
    placed: int = 0
    names: tuple[str, ...] | None = None
    has_results: bool = False
