"""The page that all processes of a daemon share."""

import os
import signal

from atp.daemon.shared.running_page import NEVER, Page, Running


def test_slots_are_apart():
    page = Page(3)
    running = Running(instance=2**40, attempt=7, deadline=NEVER, started=1.5)
    page.enter(1, *Running(2**40, 7, deadline=NEVER, started=1.5))
    page.ask(2, 5, 1)
    assert [page.read(slot) for slot in range(3)] == [None, running, None]
    assert page.is_asked(2, 5, 1)
    assert not page.is_asked(2, 5, 2)
    assert not page.is_asked(1, 5, 1)
    page.leave(1)
    assert page.read(1) is None


def test_a_child_writes_and_its_parent_reads():
    page = Page(1)
    pid = os.fork()
    if pid == 0:
        page.enter(0, *Running(1, 2, started=4.0, deadline=3.0))
        os._exit(0)
    os.waitpid(pid, 0)
    assert page.read(0) == Running(1, 2, 3.0, 4.0)


def test_limits_do_not_touch_what_is_asked():
    page = Page(1)
    page.ask(0, 1, 2)
    page.enter(0, *Running(1, 2, deadline=NEVER, started=4.0, memory=2**59, before=2**58))
    assert page.read(0) == Running(1, 2, NEVER, 4.0, 2**59, 2**58)
    assert page.is_asked(0, 1, 2)


def test_what_is_written_to_a_ring_does_not_touch_the_next_slot():
    page = Page(2)
    page.enter(1, *Running(1, 2, deadline=NEVER, started=4.0))
    ring = page.ring(0)
    while ring.write(b"\xff" * 1000):
        pass
    assert page.read(1) == Running(1, 2, NEVER, 4.0)
    assert page.read(0) is None
    assert page.ring(1).read(page.ring(1).written) == []


def test_what_is_written_again_is_never_read_as_zero():
    """G5: a deadline of zero has passed, and a transactional attempt enters twice."""
    page = Page(1)
    page.enter(0, *Running(1, 2, deadline=5.0, started=4.0, timeout=1.0))
    pid = os.fork()
    if pid == 0:
        while os.getppid() != 1:
            page.enter(0, *Running(1, 2, deadline=5.0, started=4.0, timeout=1.0))
            page.put_off(0, 6.0)
        os._exit(0)
    try:
        found = {page.read(0) for _ in range(300_000)}
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert {each and each.deadline for each in found} <= {5.0, 6.0}
    assert {each.key for each in found} == {(1, 2)}
