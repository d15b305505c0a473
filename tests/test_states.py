"""The table of transitions says once more, on purpose, what must hold (docs/states.md)."""

from atp import states
from atp.models import Instance
from atp.states import CLAIMED, LIVE, TERMINAL, TRANSITIONS, Actor, Event, Row, State


def test_states_and_events_are_all_in_the_table():
    """Every state is reached, every live one is left, and no event is ambiguous."""
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


def test_facts_of_events():
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


def test_a_holder_may_fail_what_runs_and_what_waits_has_no_holder():
    running, waiting = (row for row in TRANSITIONS if row.event == Event.FAIL)
    assert running.ends
    assert not waiting.ends
    assert not waiting.is_holders


def test_the_task_row_goes_with_the_state():
    """G1: a live Instance has exactly one Task row, a terminal one none; a held one is claimed."""
    for row in TRANSITIONS:
        before = {source in LIVE for source in row.sources}
        if row.row is Row.CREATED:
            assert before <= {False}, row
        else:
            assert before == {True}, row
        assert row.target in (TERMINAL if row.row is Row.DELETED else LIVE), row
        if row.row is Row.FREED:
            assert row.sources <= CLAIMED, row
            assert row.target is State.ACCEPTED, row
        if row.row is Row.HELD:
            assert row.target in CLAIMED, row


def test_only_who_holds_it_ends_a_claimed_attempt():
    """G4: nobody but the holder, or a sweep once its lease is over, touches what is claimed."""
    for row in TRANSITIONS:
        if row.sources & CLAIMED:
            assert row.actors <= {Actor.HOLDER, Actor.SWEEPER}, row
        if Actor.SWEEPER in row.actors:
            assert row.event is Event.EXPIRE, row


def test_what_transitions_count():
    """G5: only an attempt that was running is charged a restart. The fence only goes up."""
    names = {name for row in TRANSITIONS for name in (*row.counts, *row.resets)}
    assert names == {"attempt", "restarts", "retries", "lost"}
    assert names <= {field.name for field in Instance._meta.get_fields()}
    assert [row.event for row in TRANSITIONS if "attempt" in row.counts] == [Event.CLAIM]
    assert not any("attempt" in row.resets for row in TRANSITIONS)
    charged = [row.sources for row in TRANSITIONS if "restarts" in row.counts]
    assert charged == [frozenset({State.RUNNING, State.PAUSED})]


def test_a_transition_is_found_by_its_event_and_those_that_are_allowed_by_a_state():
    found = states.transition(Event.EXPIRE, State.PAUSED)
    assert found.target is State.ACCEPTED
    assert found.counts == ("lost", "restarts")
    assert states.transition(Event.ENQUEUE, None).target is State.ACCEPTED
    assert states.transition(Event.FINISH, State.ACCEPTED) is None
    assert states.transition(Event.START, State.FINISHED) is None
    for actor, state, events in (
        (None, State.FAILED, [Event.REDRIVE]),
        (None, State.FINISHED, []),
        (None, State.ACCEPTED, [Event.CLAIM, Event.FAIL]),
        (Actor.ANYONE, State.ACCEPTED, [Event.FAIL]),
    ):
        assert states.allowed_events(state, actor) == events
    assert Event.EXPIRE in states.allowed_events(State.SCHEDULED, Actor.SWEEPER)


def test_is_stale():
    """G5: more restarts than allowed, or ten unexplained losses on top."""
    for restarts, lost, stale in (
        *((3, 3, False), (4, 4, True), (0, 13, False), (0, 14, True), (3, 14, True)),
    ):
        assert states.is_stale(restarts=restarts, lost=lost, max_restarts=3) is stale
