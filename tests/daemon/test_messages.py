"""The protocol: each message arrives as it was sent, and somebody takes it."""

import inspect
from types import SimpleNamespace

import pytest

from atp.daemon.dispatcher.worker_changes import WorkerChanges
from atp.daemon.pool.reader import Reader
from atp.daemon.shared import messages
from atp.daemon.shared.channel import Channel
from atp.daemon.supervisor.dispatcher_process import DispatcherProcess
from atp.daemon.supervisor.supervisor import ASKED

MESSAGES = [
    each
    for each in vars(messages).values()
    if inspect.isclass(each) and each.__module__ == messages.__name__
]


@pytest.fixture
def ends():
    ours, theirs = Channel.pair()
    yield ours, theirs
    ours.close()
    theirs.close()


def example(kind):
    return kind(*range(len(kind._fields)))


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
def test_it_arrives_as_it_was_sent(ends, kind):
    ours, theirs = ends
    ours.send(example(kind))
    [arrived] = theirs.drain()
    assert type(arrived) is kind
    assert arrived == example(kind)


def test_each_is_taken_by_somebody(ends):
    core = SimpleNamespace(
        **dict.fromkeys(["pool", "page", "unrecorded", "counters", "queue", "downstreams"]),
    )
    of_workers = set(Reader(core, SimpleNamespace(times=None))._on_message)
    of_the_supervisor = {*WorkerChanges(core, None, None).on_message, messages.Stop}
    of_the_dispatcher = set(MESSAGES) - of_workers - of_the_supervisor
    assert set(messages.REPORTED.values()) <= of_workers

    process = DispatcherProcess()
    process.started(1, ends[0])
    for kind in of_the_dispatcher - {messages.Joined}:
        ends[1].send(example(kind))
    # It takes note of these itself, and passes on what concerns a worker.
    assert {type(message) for message in process.receive()} == set(ASKED)
