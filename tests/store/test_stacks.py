"""The store contract: the command for the stack of an attempt, and the stack in the log."""

import logging
from dataclasses import replace

import pytest

from atp.commands import CANCEL, PAUSE, RESUME, STACK
from atp.models import ASKED, Kind
from atp.states import State
from atp.store.values import Message, ProgressUpdate


def commands(world, host):
    return [command.request for command in world.store.control.asked(host.uuid)]


def note_with_stack(world, case):
    stack = Message(
        time=world.store.now(), level=logging.INFO, text="a stack", kind=Kind.STACK, detail=ASKED
    )
    return ProgressUpdate(instance=case.instance, attempt=case.number, messages=(stack,))


def test_command_for_the_stack_stands_beside_another_command_until_a_cancel(world, host):
    case = world.bring_to(State.RUNNING, host)
    assert world.store.control.request(case.instance, PAUSE, who="ann")
    assert world.store.control.request(case.instance, STACK, who="bob")
    assert commands(world, host) == [PAUSE, STACK]
    last = world.log(case.instance)[-1]
    assert (last.kind, last.detail, last.who) == (Kind.ASK, STACK, "bob")
    assert world.store.control.request(case.instance, RESUME, who="ann")
    assert commands(world, host) == [RESUME, STACK]
    assert world.store.records.note([note_with_stack(world, case)], daemon=host.uuid) == []
    assert commands(world, host) == [RESUME]
    assert world.store.control.request(case.instance, STACK, who="bob")
    world.store.control.cancel([case.instance], who="ann")
    assert commands(world, host) == [CANCEL]


@pytest.mark.parametrize("state", State)
def test_stack_is_asked_for_once_and_only_of_an_attempt_that_runs_or_is_paused(world, host, state):
    case = world.bring_to(state, host)
    may = state in (State.RUNNING, State.PAUSED)
    assert world.store.control.request(case.instance, STACK, who="ann") is may
    assert world.store.control.request(case.instance, STACK, who="ann") is False
    assert len([row for row in world.log(case.instance) if row.kind == Kind.ASK]) == may


def test_stack_is_written_once_even_if_its_note_is_sent_again(world, host):
    case = world.bring_to(State.RUNNING, host)
    note = note_with_stack(world, case)
    world.store.records.note([note], daemon=host.uuid)
    assert world.store.records.note([replace(note, again=True)], daemon=host.uuid) == []
    [row] = [row for row in world.log(case.instance) if row.kind == Kind.STACK]
    assert (row.message, row.detail, row.attempt) == ("a stack", ASKED, case.number)
