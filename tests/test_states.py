"""Tests that state the rules of the table of transitions a second time (docs/states.md)."""

from atp import states
from atp.models import Instance
from atp.states import CLAIMED, LIVE, TERMINAL, TRANSITIONS, Actor, Event, Row, State


def test_transition_table_contains_all_states_and_events():
    """Each state can be reached, each live state can be left, and no event is ambiguous."""
    assert set(State) == TERMINAL | LIVE
    assert not TERMINAL & LIVE
    assert LIVE - {State.ACCEPTED} == CLAIMED
    assert {row.event for row in TRANSITIONS} == set(Event)
    assert {row.target for row in TRANSITIONS} == set(State)
    left = {source for row in TRANSITIONS for source in row.sources}
    assert left >= LIVE
    assert State.FINISHED not in left
    pairs = [(row.event, source) for row in TRANSITIONS for source in row.sources]
    assert len(pairs) == len(set(pairs))


def test_each_property_is_true_of_exactly_the_listed_events():
    for fact, told in {
        "is_holders": "start pause resume finish retry defer release expire fail",
        "continues": "start pause resume",
        "ends": "finish retry defer release expire fail",
        "is_outcome": "finish retry defer fail",
        "puts_back": "retry defer release expire",
        "loses": "expire",
        "is_plain": "start pause resume finish retry defer release fail",
    }.items():
        found = states.events(lambda row, fact=fact: getattr(row, fact))
        assert found == {Event(word) for word in told.split()}
    # A fail ends an attempt only if the Instance is claimed.
    running, waiting = (row for row in TRANSITIONS if row.event == Event.FAIL)
    assert [running.ends, waiting.ends, waiting.is_holders] == [True, False, False]


def test_each_transition_changes_the_task_row_with_the_state():
    """G1: a live Instance has exactly one Task row, and a terminal Instance has none."""
    for row in TRANSITIONS:
        before = {source in LIVE for source in row.sources}
        assert before <= {False} if row.row is Row.CREATED else before == {True}, row
        assert row.target in (TERMINAL if row.row is Row.DELETED else LIVE), row
        if row.row is Row.FREED:
            assert (row.sources <= CLAIMED, row.target) == (True, State.ACCEPTED), row
        if row.row is Row.HELD:
            assert row.target in CLAIMED, row


def test_claimed_instance_is_changed_only_by_its_holder_or_the_sweeper():
    """G4: the sweeper's only transition is ``expire``, after the holder's lease is over."""
    for row in TRANSITIONS:
        if row.sources & CLAIMED:
            assert row.actors <= {Actor.HOLDER, Actor.SWEEPER}, row
        if Actor.SWEEPER in row.actors:
            assert row.event is Event.EXPIRE, row


def test_transitions_count_attempts_restarts_retries_and_losses():
    """G5: a restart is charged only for a running attempt. The number of attempts never falls."""
    names = {name for row in TRANSITIONS for name in (*row.counts, *row.resets)}
    assert names == {"attempt", "restarts", "retries", "lost"}
    assert names <= {field.name for field in Instance._meta.get_fields()}
    assert [row.event for row in TRANSITIONS if "attempt" in row.counts] == [Event.CLAIM]
    assert not any("attempt" in row.resets for row in TRANSITIONS)
    charged = [row.sources for row in TRANSITIONS if "restarts" in row.counts]
    assert charged == [frozenset({State.RUNNING, State.PAUSED})]


def test_instance_is_stale_after_too_many_restarts_or_losses():
    """G5: ``restarts`` exceeds ``max_restarts``, or ``lost`` exceeds it by more than ten."""
    for restarts, lost, stale in ((3, 3, 0), (4, 4, 1), (0, 13, 0), (0, 14, 1), (3, 14, 1)):
        assert states.is_stale(restarts=restarts, lost=lost, max_restarts=3) is bool(stale)


def test_transitions_are_found_by_event_and_by_state():
    found = states.transition(Event.EXPIRE, State.PAUSED)
    assert (found.target, found.counts) == (State.ACCEPTED, ("lost", "restarts"))
    assert states.transition(Event.START, State.FINISHED) is None
    for actor, state, events in (
        (None, State.FINISHED, []),
        (None, State.ACCEPTED, [Event.CLAIM, Event.FAIL]),
        (Actor.ANYONE, State.ACCEPTED, [Event.FAIL]),
    ):
        assert states.allowed_events(state, actor) == events
