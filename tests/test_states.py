"""Tests of :mod:`atp.states`."""

import pytest

from atp import states
from atp.models import Instance
from atp.states import CLAIMED, LIVE, TERMINAL, TRANSITIONS, Actor, Event, Row, State


def test_there_are_the_six_states_of_rfc_14():
    assert {state.value for state in State} == {
        "ACCEPTED",
        "SCHEDULED",
        "RUNNING",
        "PAUSED",
        "FINISHED",
        "FAILED",
    }


def test_terminal_live_and_claimed_fit_together():
    assert set(State) == TERMINAL | LIVE
    assert not TERMINAL & LIVE
    assert LIVE - {State.ACCEPTED} == CLAIMED


def test_every_event_has_a_row():
    assert {row.event for row in TRANSITIONS} == set(Event)


@pytest.mark.parametrize(
    ("fact", "told"),
    [
        ("is_holders", "start pause resume finish retry defer release expire fail"),
        ("continues", "start pause resume"),
        ("ends", "finish retry defer release expire fail"),
        ("is_outcome", "finish retry defer fail"),
        ("puts_back", "retry defer release expire"),
        ("loses", "expire"),
    ],
)
def test_facts_of_events(fact, told):
    assert states.events(lambda row: getattr(row, fact)) == {Event(word) for word in told.split()}


def test_a_fact_is_one_transitions_not_all_of_its_events():
    """A holder may fail what runs; what waits has no holder, and no attempt that could end."""
    running, waiting = (row for row in TRANSITIONS if row.event == Event.FAIL)
    assert running.ends
    assert not waiting.ends
    assert not waiting.is_holders


def test_no_event_is_ambiguous():
    pairs = [(row.event, source) for row in TRANSITIONS for source in row.sources]
    assert len(pairs) == len(set(pairs))


@pytest.mark.parametrize("row", TRANSITIONS, ids=lambda row: f"{row.event}-{row.target}")
def test_the_task_row_goes_with_the_state(row):
    """G1: a live Instance has exactly one Task row, a terminal one none; a held one is claimed."""
    before = {source in LIVE for source in row.sources}
    if row.row is Row.CREATED:
        assert before <= {False}
        assert row.target in LIVE
    elif row.row is Row.DELETED:
        assert before == {True}
        assert row.target in TERMINAL
    else:
        assert before == {True}
        assert row.target in LIVE
    if row.row is Row.FREED:
        assert row.sources <= CLAIMED
        assert row.target is State.ACCEPTED
    if row.row is Row.HELD:
        assert row.target in CLAIMED


@pytest.mark.parametrize("row", TRANSITIONS, ids=lambda row: f"{row.event}-{row.target}")
def test_only_who_holds_it_ends_a_claimed_attempt(row):
    """G4: nobody but the holder, or a sweep once its lease is over, touches what is claimed."""
    if row.sources & CLAIMED:
        assert row.actors <= {Actor.HOLDER, Actor.SWEEPER}
    if Actor.SWEEPER in row.actors:
        assert row.event is Event.EXPIRE


def test_every_state_is_reached_and_every_live_one_is_left():
    reached = {row.target for row in TRANSITIONS}
    assert reached == set(State)
    left = {source for row in TRANSITIONS for source in row.sources}
    assert left >= LIVE
    assert State.FINISHED not in left


def test_counters_are_fields_of_the_instance():
    names = {name for row in TRANSITIONS for name in (*row.counts, *row.resets)}
    assert names == {"attempt", "restarts", "retries", "lost"}
    assert names <= {field.name for field in Instance._meta.get_fields()}


def test_the_fence_only_goes_up():
    assert [row.event for row in TRANSITIONS if "attempt" in row.counts] == [Event.CLAIM]
    assert not any("attempt" in row.resets for row in TRANSITIONS)


def test_only_an_attempt_that_was_running_is_charged_a_restart():
    """G5: what had not started when it was lost is not to blame."""
    charged = [row.sources for row in TRANSITIONS if "restarts" in row.counts]
    assert charged == [frozenset({State.RUNNING, State.PAUSED})]


def test_transition_finds_the_row():
    found = states.transition(Event.EXPIRE, State.PAUSED)
    assert found.target is State.ACCEPTED
    assert found.counts == ("lost", "restarts")
    assert states.transition(Event.ENQUEUE, None).target is State.ACCEPTED


def test_transition_of_an_illegal_move_is_none():
    assert states.transition(Event.FINISH, State.ACCEPTED) is None
    assert states.transition(Event.START, State.FINISHED) is None


def test_allowed_events():
    assert states.allowed_events(State.FAILED) == [Event.REDRIVE]
    assert states.allowed_events(State.FINISHED) == []
    assert states.allowed_events(State.ACCEPTED) == [Event.CLAIM, Event.FAIL]
    assert states.allowed_events(State.ACCEPTED, Actor.ANYONE) == [Event.FAIL]
    assert Event.EXPIRE in states.allowed_events(State.SCHEDULED, Actor.SWEEPER)


@pytest.mark.parametrize(
    ("restarts", "lost", "stale"),
    [(3, 3, False), (4, 4, True), (0, 13, False), (0, 14, True), (3, 14, True)],
)
def test_is_stale(restarts, lost, stale):
    """G5: more restarts than allowed, or ten unexplained losses on top."""
    assert states.is_stale(restarts=restarts, lost=lost, max_restarts=3) is stale
