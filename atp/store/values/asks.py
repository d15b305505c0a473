"""Asks: what operators want of the holder of a claimed Task."""

from dataclasses import dataclass

# A request on a claimed Task. A cancel stays, whatever else is asked afterwards.
RELEASE = "release"
CANCEL = "cancel"
# Each of these holds until the other is asked. The Task's holder carries it out.
PAUSE, RESUME = "pause", "resume"


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """A request on a claimed Task: its holder has to act.

    For a cancel, ``who`` asked for it, and ``age`` is how long ago, in seconds.
    """

    instance: int
    attempt: int
    request: str
    who: str = ""
    age: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Cancelled:
    """The outcome of a cancel, by keys of Instances.

    Those in ``failed`` waited and are FAILED now. For ``asked`` the holder is asked now;
    for ``before`` it had been asked already. A key in none of them is not live.
    """

    failed: tuple[int, ...] = ()
    asked: tuple[int, ...] = ()
    before: tuple[int, ...] = ()
