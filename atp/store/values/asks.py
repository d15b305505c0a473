"""Asks: requests of operators to the holder of a claimed Task."""

from dataclasses import dataclass

# Requests on a claimed Task. A cancel stays, whatever is asked afterwards.
RELEASE = "release"
CANCEL = "cancel"
# Each of these holds until the other one is asked.
PAUSE, RESUME = "pause", "resume"


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """A request on a claimed Task, which its holder has to carry out.

    Only a cancel has ``who`` asked for it, and ``age``: how many seconds ago.
    """

    instance: int
    attempt: int
    request: str
    who: str = ""
    age: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Cancelled:
    """The outcome of a cancel, as keys of Instances.

    ``failed``: they waited, and are FAILED now. ``asked``: their holders are asked now.
    ``before``: their holders had been asked before. All other keys are not live.
    """

    failed: tuple[int, ...] = ()
    asked: tuple[int, ...] = ()
    before: tuple[int, ...] = ()
