"""The judge of limits, held against evidence made by hand."""

from .forged import Forger, evidence, found, only
from .judge import crowded


def of_a_limited_type(uuid):
    return Forger(uuid, type="chaos.alone")


def test_one_after_the_other():
    first = of_a_limited_type("one").begin().finish()
    second = of_a_limited_type("two")
    second.clock = first.clock
    assert found(evidence(first, second.begin(pid=2).finish(pid=2))) == {}


def test_two_at_once():
    first, second = (of_a_limited_type(uuid).begin() for uuid in ("one", "two"))
    [words, _] = only(evidence(first.finish(), second.finish()), crowded)
    assert words == "2 of chaos.alone executed at once"


def test_what_is_not_limited_may():
    first, second = (Forger(uuid).begin().finish() for uuid in ("one", "two"))
    assert found(evidence(first, second)) == {}
