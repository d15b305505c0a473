"""What the judge says."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Breach:
    """A promise that was broken: how, and on which Instance if it was on one."""

    words: str
    uuid: str = ""


@dataclass(frozen=True)
class Verdict:
    """What a check came to."""

    promise: str
    breaches: tuple

    @property
    def is_kept(self):
        return not self.breaches
