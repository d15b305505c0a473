"""The right to start a task: whoever takes its token has it, and nobody else (G3)."""

import os
import threading

import pytest

from atp.daemon.shared.tokens import Tokens


@pytest.fixture
def tokens():
    tokens = Tokens.pipe()
    yield tokens
    tokens.close()


def other(tokens):
    """The same tokens, as another process has them."""
    return Tokens(os.dup(tokens.taking))


def test_each_is_taken_once(tokens):
    tokens.give([1, 2, 3])
    assert tokens.take(1)
    assert not tokens.take(1)
    assert tokens.take_all() == [3]  # the second one was read to be compared
    assert tokens.take(2)
    assert not tokens.take(3)


def test_what_was_taken_back_is_not_started(tokens):
    """Not even if another token comes before the worker looks."""
    tokens.give([1, 2])
    assert tokens.take_all() == [1, 2]
    tokens.give([3])
    assert not tokens.take(1)
    assert not tokens.take(2)
    assert tokens.take(3)


def test_as_many_as_a_worker_may_have_in_hand(tokens):
    tokens.give(list(range(1, 2001)))
    assert tokens.take(1)
    assert len(tokens.take_all()) == 1999
    assert tokens.take_all() == []


def test_two_that_reach_for_the_same(tokens):
    """A token goes to one of them."""
    worker = other(tokens)
    taken = {"worker": [], "dispatcher": []}
    numbers = list(range(1, 3001))

    def start():
        taken["worker"] += [number for number in numbers if worker.take(number)]

    tokens.give(numbers)
    thread = threading.Thread(target=start)
    thread.start()
    taken["dispatcher"] += tokens.take_all()
    thread.join()
    assert sorted(taken["worker"] + taken["dispatcher"]) == numbers
    os.close(worker.taking)


def test_nothing_comes_from_who_is_gone():
    tokens = Tokens.pipe()
    worker = other(tokens)
    tokens.close()
    assert not worker.take(1)
    os.close(worker.taking)
