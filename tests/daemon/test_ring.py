"""The ring in which a worker says how its attempts ended."""

import os

import pytest

from atp.daemon.shared.ring import Ring


@pytest.fixture
def ring():
    return Ring(memoryview(bytearray(16 + 256)))


def read(ring):
    return ring.read(ring.written)


def test_records_come_in_order_and_once(ring):
    assert read(ring) == []
    for record in (b"one", b"", b"three"):
        assert ring.write(record)
    assert read(ring) == [b"one", b"", b"three"]
    assert read(ring) == []


def test_it_goes_round_for_ever(ring):
    """A record may begin at the end of the memory and go on at its beginning."""
    for number in range(1000):
        record = bytes([number % 256]) * (number % 90)
        assert ring.write(record)
        assert read(ring) == [record]


def test_what_has_no_room_is_not_written(ring):
    """Nothing that has not been read is overwritten."""
    written = 0
    while ring.write(b"x" * 20):
        written += 1
    assert written == 256 // 28
    assert not ring.write(b"x" * 300)
    assert read(ring) == [b"x" * 20] * written
    assert ring.write(b"y")
    assert read(ring) == [b"y"]


def test_only_what_was_there_at_the_first_look_is_read(ring):
    ring.write(b"before")
    until = ring.written
    ring.write(b"after")
    assert ring.read(until) == [b"before"]
    assert read(ring) == [b"after"]


def test_a_record_whose_bytes_are_not_there_yet_is_left():
    """A processor may show the count of what is written before the bytes."""
    memory = memoryview(bytearray(16 + 256))
    ring = Ring(memory)
    ring.write(b"whole")
    ring.write(b"late")
    at = 16 + 8 + 5 + 8
    memory[at : at + 4] = b"....".replace(b".", b"\0")
    assert read(ring) == [b"whole"]
    memory[at : at + 4] = b"late"
    assert read(ring) == [b"late"]


def test_skip(ring):
    ring.write(b"of its predecessor")
    ring.skip()
    assert read(ring) == []


def test_from_process_to_process():
    """What a process has written is there, whatever becomes of it."""
    import mmap

    memory = mmap.mmap(-1, 4096)
    pid = os.fork()
    if pid == 0:
        ring = Ring(memoryview(memory))
        for number in range(100):
            ring.write(str(number).encode())
        os._exit(9)
    os.waitpid(pid, 0)
    assert read(Ring(memoryview(memory))) == [str(n).encode() for n in range(100)]
