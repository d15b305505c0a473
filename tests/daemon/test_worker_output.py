"""What workers print: passed on in whole lines, never waited for, and not without end (G5)."""

import json
import os
from uuid import UUID

import pytest

from atp.daemon.journal import Style
from atp.daemon.supervisor import worker_output as module
from atp.daemon.supervisor.output_lines import marked
from atp.daemon.supervisor.worker_output import EVERY, LONGEST_LINE, RATE, WorkerOutput


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 1000.0

        def __call__(self):
            return self.now

    clock = Clock()
    monkeypatch.setattr(module, "uptime", clock)
    return clock


@pytest.fixture
def hall(clock, tmp_path, monkeypatch):
    """A worker that prints, and the file that it comes to."""
    told = []
    monkeypatch.setattr(module.journal, "prints_dropped", lambda **v: told.append(v), raising=False)
    log = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    prints = WorkerOutput(lambda slot: None, log)
    prints.pen, prints.clock, prints.told = prints.open(0), clock, told
    prints.passed = (tmp_path / "log").read_bytes
    yield prints
    prints.close()
    os.close(log)
    os.close(prints.pen)


def say(hall, data):
    """Print, and let what waits be passed on."""
    os.write(hall.pen, data)
    hall.clock.now += EVERY
    hall.forward(hall.descriptors())


def test_lines_are_passed_on_whole(hall):
    say(hall, b"one\ntw")
    assert hall.passed() == b"worker 0: one\n"
    say(hall, b"o\n")
    assert hall.passed() == b"worker 0: one\nworker 0: two\n"
    say(hall, b"last words")
    hall.ended(0)
    assert hall.passed() == b"worker 0: one\nworker 0: two\nworker 0: last words\n"
    hall.ended(0)  # nothing of it is left


def test_a_line_without_an_end(hall):
    say(hall, b"x" * (LONGEST_LINE + 1))
    assert hall.passed() == b"worker 0: " + b"x" * (LONGEST_LINE + 1) + b"\n"


def test_too_much_is_dropped_and_counted(hall):
    line = b"x" * 999 + b"\n"
    for _ in range(100):
        say(hall, line * 60)
    assert RATE <= len(hall.passed()) <= RATE * 1.5
    assert set(hall.passed().split(b"\n")) == {b"worker 0: " + line[:-1], b""}
    hall.clock.now += 10
    hall.forward(hall.descriptors())
    assert [told["worker"] for told in hall.told] == [0, 0]  # that it begins, and how much it was
    # A second later there is room again.
    before = len(hall.passed())
    say(hall, line)
    assert len(hall.passed()) == before + len(b"worker 0: " + line)


def test_a_log_that_nobody_reads_keeps_nobody_waiting(hall, monkeypatch):
    def full(data):
        raise BlockingIOError

    monkeypatch.setattr(hall, "_write", full)
    for _ in range(100):
        say(hall, b"x" * 999 + b"\n")
    hall.ended(0)
    assert hall.passed() == b""
    assert sum(1 for _ in hall.told) >= 1


def test_who_prints_without_end_is_read_now_and_then(hall):
    """What is due later is not waited for, so that the supervisor has time for all else."""
    [descriptor] = hall.descriptors()
    os.write(hall.pen, b"x\n")
    hall.forward(hall.descriptors())
    assert hall.descriptors() == []
    assert hall.pause(0.25) == pytest.approx(EVERY)
    hall.clock.now += EVERY
    assert hall.descriptors() == [descriptor]
    assert hall.pause(0.25) == 0.25


def test_a_line_says_whose_it_is_and_harms_nobody():
    uuid = UUID(int=7)
    told = marked(b"\x1b]0;title\x07 a\tb\r\nschl\xc3\xa4ft \xff\n", worker=1, instance=uuid)
    assert told.decode() == (
        f"worker 1 {uuid}: \\x1b]0;title\\x07 a\tb\nworker 1 {uuid}: schl\u00e4ft \\xff\n"
    )


@pytest.mark.parametrize("is_json", [False, True])
def test_a_printed_line_is_one_line_for_every_reader(monkeypatch, is_json):
    monkeypatch.setattr(Style, "is_json", is_json)
    told = marked("a\r\x85\u2028\x1c\x7f\u202e\u061cb\n".encode(), worker=1, instance=None).decode()
    assert len(told.splitlines()) == 1
    assert not set(told) & set("\r\x85\u2028\x7f\u202e\u061c")


def test_nobody_forges_a_line_of_the_log(monkeypatch):
    """In JSON a printed line is the value of another."""
    monkeypatch.setattr(Style, "is_json", True)
    forged = b'{"level": "ERROR", "fact": "failed"}\n'
    line = json.loads(marked(forged, worker=1, instance=UUID(int=7)))
    assert (line["fact"], line["level"], line["worker"]) == ("printed", "INFO", 1)
    assert (line["message"], line["instance"]) == (forged.decode().strip(), str(UUID(int=7)))
