"""What the processes of a daemon share: rings, the page, and the tokens of tasks (G3, G5)."""

import os
import signal
import threading

import pytest

from . import inside


@pytest.fixture
def ring():
    return inside.Ring(memoryview(bytearray(16 + 256)))


@pytest.fixture
def tokens():
    tokens = inside.Tokens.pipe()
    yield tokens
    tokens.close()


def read(ring):
    return ring.read(ring.written)


def test_ring_wraps_around(ring):
    """Also within a record."""
    for number in range(1000):
        record = bytes([number % 256]) * (number % 90)
        assert ring.write(record)
        assert read(ring) == [record]


def test_ring_overwrites_no_unread_record(ring):
    written = 0
    while ring.write(b"x" * 20):
        written += 1
    assert written == 256 // 28
    assert not ring.write(b"x" * 300)
    assert read(ring) == [b"x" * 20] * written
    assert ring.write(b"y")
    assert read(ring) == [b"y"]


def test_record_whose_bytes_are_missing_is_read_later():
    """A processor may show the count of what is written before the bytes."""
    memory = memoryview(bytearray(16 + 256))
    ring = inside.Ring(memory)
    ring.write(b"whole")
    ring.write(b"late")
    at = 16 + 8 + 5 + 8
    memory[at : at + 4] = bytes(4)
    assert read(ring) == [b"whole"]
    memory[at : at + 4] = b"late"
    assert read(ring) == [b"late"]


def test_slots_of_the_shared_memory_do_not_overlap():
    page = inside.Page(3)
    running = inside.Running(instance=2**40, attempt=7, deadline=inside.NEVER, started=1.5)
    page.enter(1, *running)
    page.ask(2, 5, 1)
    assert [page.read(slot) for slot in range(3)] == [None, running, None]
    asked = [page.is_asked(*each) for each in ((2, 5, 1), (2, 5, 2), (1, 5, 1))]
    assert asked == [True, False, False]
    ring = page.ring(0)
    while ring.write(b"\xff" * 1000):
        pass
    assert [page.read(slot) for slot in range(3)] == [None, running, None]
    assert read(page.ring(1)) == []
    page.leave(1)
    assert page.read(1) is None


def test_rewritten_entry_is_never_read_as_zero():
    """G5: a deadline of zero has passed, and a transactional attempt enters twice."""
    page = inside.Page(1)
    page.enter(0, *inside.Running(1, 2, deadline=5.0, started=4.0, timeout=1.0))
    pid = os.fork()
    if pid == 0:
        while os.getppid() != 1:
            page.enter(0, *inside.Running(1, 2, deadline=5.0, started=4.0, timeout=1.0))
            page.put_off(0, 6.0)
        os._exit(0)
    try:
        found = {page.read(0) for _ in range(300_000)}
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert {each and each.deadline for each in found} <= {5.0, 6.0}
    assert {each.key for each in found} == {(1, 2)}


def test_each_token_is_taken_once(tokens):
    """G3: with it the task can be started; a token that was taken back is worthless."""
    tokens.give([1, 2, 3])
    assert tokens.take(1)
    assert not tokens.take(1)
    assert tokens.take_all() == [3]  # the second one was read to be compared
    assert tokens.take(2)
    assert not tokens.take(3)
    tokens.give([4, 5])
    assert tokens.take_all() == [4, 5]
    tokens.give([6])
    assert [tokens.take(number) for number in (4, 5, 6)] == [False, False, True]


def test_only_one_of_two_takes_a_token(tokens):
    """G3."""
    worker = inside.Tokens(os.dup(tokens.taking))  # as another process has them
    numbers = list(range(1, 3001))
    started = []

    def start():
        started.extend(number for number in numbers if worker.take(number))

    tokens.give(numbers)
    thread = threading.Thread(target=start)
    thread.start()
    taken_back = tokens.take_all()
    thread.join()
    assert sorted(started + taken_back) == numbers
    os.close(worker.taking)
