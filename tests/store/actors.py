"""The actors around a queue: random verbs, executed on a store and on the model."""

import logging
from collections import defaultdict
from datetime import timedelta
from itertools import count

import pytest
from django.db import transaction
from django.db.models import F
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from atp.commands import RELEASE
from atp.exceptions import DuplicateIdentifier, InvalidOption, LeaseLost
from atp.models import Daemon, Instance, LogRecord, Response, Task
from atp.payload.codec import Payload
from atp.states import Event
from atp.store.facts import Changes
from atp.store.values import Message, Move, ProgressUpdate, ResponseData, Submission

from .model import MAX_RESTARTS, MOVES, Item, Model, Pending
from .world import HOUR, LEASE, ONE, TWO, registration

# How many there are at most at a time. Among few, the same one is met again.
DAEMONS = 3
MOST_LIVE = 6
# What ends of the second Type may be removed at once.
TYPES = {
    ONE: registration(ONE, max_restarts=MAX_RESTARTS),
    TWO: registration(TWO, max_restarts=MAX_RESTARTS, retention=timedelta(microseconds=1)),
}
# Between two times that are told. One that is told again would be taken for the same.
BETWEEN = timedelta(milliseconds=5)
PICK = st.integers(0, 99)


class Actors(RuleBasedStateMachine):
    def __init__(self, world):
        super().__init__()
        self.world = world
        # One that remembers nothing of the last example, so that each can be repeated.
        self.store = world.store = type(world.store)(world.store.alias)
        self.model = Model()
        # All daemons that ever were, by name; those that are dead are told nothing.
        self.hosts = {}
        self.names = (f"d{number}" for number in count())
        self.texts = (f"said {number}" for number in count())
        self.before = self.store.now()
        self.is_timed = False
        # All in the past, however many: retention would not touch what ends in the future.
        self.times = (self.before - HOUR + n * BETWEEN for n in count())
        # The next example has a queue of its own.
        self._transaction = transaction.atomic()
        self._transaction.__enter__()

    def teardown(self):
        transaction.set_rollback(True)
        self._transaction.__exit__(None, None, None)
        for host in self.world.hosts:
            host.close()
        self.world.hosts.clear()

    @invariant()
    def step_is_done(self):
        """Store and model agree after each."""
        compare(self.world, self.model, self.hosts, self.before)
        self.before = self.store.now()

    def item(self, pick):
        """One of the Items, rather a younger one; it is made if there is none."""
        items = list(self.model.items.values()) or self.submit(ONE)
        return items[-1 - pick % len(items)]

    def name(self, pick):
        """One of the daemons, also of those that are gone, rather a younger one."""
        names = list(self.hosts)
        return names[-1 - pick % min(len(names), DAEMONS + 2)]

    def alive(self, pick):
        """One of the daemons with a row and a lease; there is one."""
        names = [name for name, over in self.model.daemons.items() if not over]
        return names[pick % len(names)] if names else self.join()


def compare(world, model, hosts, before):
    """Assert it; ``before`` is when the step that has just been made began.

    G1: one Task row for each live Instance and none besides. G6: each transition is
    logged once. Messages may stand between the transitions, whoever wrote them.
    """
    keys = {host.uuid: name for name, host in hosts.items()}
    daemons = {row.pk: keys[row.uuid] for row in Daemon.objects.all()}
    assert set(daemons.values()) == set(model.daemons), "daemons"
    _compare_instances(model)
    _compare_tasks(world, model, daemons, before)
    _compare_logs(model)
    responding = {item.key for item in model.items.values() if item.has_response}
    assert set(Response.objects.values_list("pk", flat=True)) == responding, "responses"


def _compare_instances(model):
    rows = Instance.objects.in_bulk()
    assert rows.keys() == model.items.keys(), "Instances"
    for key, item in model.items.items():
        row = rows[key]
        for name in ("state", "reason", "attempt", "restarts", "retries", "lost", "progress"):
            assert getattr(row, name) == getattr(item, name), f"{name} of {item}"
        assert (row.started is not None) == item.was_started, f"started, {item}"
        assert (row.finished is not None) != item.is_live, f"finished, {item}"


def _compare_tasks(world, model, daemons, before):
    rows = Task.objects.select_related("type").in_bulk()
    assert rows.keys() == {item.key for item in model.live()}, "one Task row per live Instance (G1)"
    now = world.store.now()
    for key, row in rows.items():
        item = model.items[key]
        holder = None if row.daemon_id is None else daemons[row.daemon_id]
        assert (holder, row.attempt, row.request) == (item.holder, item.attempt, item.request), item
        assert (row.type.identifier, row.priority) == (item.type, item.priority), item
        assert row.start_before == item.start_before, f"start_before, {item}"
        if isinstance(item.due, Pending):
            assert before + item.due.delay <= row.due_at <= now + item.due.delay, f"due, {item}"
            item.due = row.due_at
        assert row.due_at == item.due, f"due, {item}"


def _compare_logs(model):
    histories, said = defaultdict(list), defaultdict(list)
    for record in LogRecord.objects.filter(instance__isnull=False).in_order():
        if record.event:
            histories[record.instance_id].append((record.event, record.state, record.attempt))
        elif record.message.startswith("said "):
            said[record.instance_id].append(record.message)
    for key, item in model.items.items():
        assert histories.pop(key) == item.history, "each transition is logged once (G6)"
        assert said.pop(key, []) == item.said, "messages"
    assert not histories


class Applications(Actors):
    def submit(self, type, number=1, due=None, **options):
        """Enqueue some; returns their Items."""
        asked = Submission(inputs=Payload("json", "{}"), due=due, **options)
        made = self.store.enqueueing.enqueue(TYPES[type], [asked] * number, who="tests")
        items = [Item(each.pk, type, due=due or Pending(), **options) for each in made]
        self.model.items |= {item.key: item for item in items}
        return items

    @precondition(lambda self: len(self.model.live()) < MOST_LIVE)
    @rule(
        type=st.sampled_from([ONE, ONE, TWO]),
        number=st.integers(1, 4),
        priority=st.sampled_from([0, 0, 1, -1]),
        due=st.sampled_from([None, None, -HOUR, -2 * HOUR, HOUR]),
        start_before=st.sampled_from([None, None, None, HOUR, -HOUR]),
    )
    def enqueue(self, type, number, priority, due, start_before):
        now = self.store.now()
        due = None if due is None else now + due
        start_before = None if start_before is None else now + start_before
        self.submit(type, number, due, priority=priority, start_before=start_before)

    @rule(
        type=st.sampled_from([ONE, TWO]),
        identifier=st.sampled_from(["a", "b"]),
        existing=st.sampled_from(["raise", "return", "redrive"]),
    )
    def enqueue_identified(self, type, identifier, existing):
        taken = self.model.identified(type, identifier)
        if taken is None:
            self.submit(type, identifier=identifier)
            return
        request = Submission(inputs=Payload("json", "{}"), identifier=identifier, existing=existing)
        if existing == "raise":
            with pytest.raises(DuplicateIdentifier):
                self.store.enqueueing.enqueue(TYPES[type], [request])
            return
        [instance] = self.store.enqueueing.enqueue(TYPES[type], [request])
        assert instance.pk == taken.key
        if existing == "redrive":
            taken.by_anyone("redrive")


LOST_LIMITS = st.sampled_from([500, 2, 1])


class Daemons(Actors):
    @initialize()
    def two_daemons(self):
        for _ in range(2):
            self.join()

    def join_another(self, pick):
        if len(self.model.daemons) < DAEMONS:
            self.join()

    def join(self):
        name = next(self.names)
        self.hosts[name] = self.world.host(*TYPES, name=name)
        self.model.daemons[name] = False
        return name

    def join_again(self, pick):
        """Under the same uuid: the answer had got lost."""
        name = self.name(pick)
        if self.model.daemons.get(name) is False:
            host = self.hosts[name]
            host.close()
            answer = host.join()
            held = self.model.held_by(name)
            assert answer.kept == {(item.key, item.attempt): item.state for item in held}

    @rule(pick=PICK, wanted=st.integers(0, 7), off=st.sampled_from([0, 0, 0, -1, 1]))
    def rejoin(self, pick, wanted, off):
        """With an old identity, which may be gone, and some of what it holds in hand."""
        old, new = self.name(pick), next(self.names)
        held = [item for item in self.model.items.values() if item.holder == old]
        holding = {
            (item.key, item.attempt + off) for n, item in enumerate(held) if wanted >> n % 3 & 1
        }
        own = {"old": self.hosts[old].uuid, "holding": sorted(holding)}
        self.hosts[new] = self.world.host(*TYPES, name=new, **own)
        answer = self.hosts[new].joined
        kept, lost = self.model.rejoin(old, new, holding)
        assert answer.kept == {(item.key, item.attempt): item.state for item in kept}
        assert [loss.stale for loss in answer.lost].count(True) == sum(
            not item.is_live for item in lost
        )
        assert answer.expired == len(lost)

    def renew(self, pick):
        name = self.name(pick)
        host = self.hosts[name]
        if name not in self.model.daemons:
            with pytest.raises(LeaseLost):
                self.store.daemons.renew(host.uuid, lease=LEASE)
            return
        self.store.daemons.renew(host.uuid, lease=LEASE)
        if self.store.lock_folder is None:
            self.model.daemons[name] = False

    def lose_lease(self, pick):
        name = self.name(pick)
        if name in self.model.daemons:
            self.hosts[name].lose_lease()
            self.model.daemons[name] = True

    def leave(self, pick):
        name = self.name(pick)
        self.store.daemons.leave(self.hosts[name].uuid)
        self.model.leave(name)

    @rule(pick=PICK, lost=st.sampled_from([(), (0,), (1,), (0, 1)]), limit=LOST_LIMITS)
    def sweep(self, pick, lost, limit):
        """Of daemons that are lost, and perhaps just now."""
        for each in lost:
            self.lose_lease(each)
        name = self.name(pick) if pick % 2 else None
        swept = self.store.daemons.sweep(daemon=name and self.hosts[name].uuid, limit=limit)
        gone = self.model.lost_daemons(besides=name)
        uuids = {loss.uuid for loss in swept.lost}
        taken = list(Instance.objects.filter(uuid__in=uuids).values_list("pk", flat=True))
        could = [item.key for lost in gone for item in self.model.held_by(lost)]
        assert len(taken) == min(limit, len(could))
        assert set(taken) <= set(could)
        for key in taken:
            self.model.items[key].move("expire")
        self.model.forget_daemons(besides=name)

    def look(self, pick):
        name = self.name(pick)
        uuid = self.hosts[name].uuid
        now = self.store.now()
        seen = self.store.daemons.outlook([ONE], daemon=uuid)
        waiting = [i for i in self.model.items.values() if i.type == ONE and i.waits]
        assert (seen.due is not None) == bool(waiting)
        if waiting:
            assert (seen.due <= 0) == any(item.due <= now for item in waiting)
        assert seen.late == any(item.is_late(now) for item in self.model.items.values())
        assert seen.lost == bool(self.model.lost_daemons(besides=name))
        asked = {(a.instance, a.attempt, a.request) for a in self.store.control.asked(uuid)}
        held = self.model.held_by(name)
        assert asked == {(i.key, i.attempt, i.request) for i in held if i.request}


# Events in the order of a life, so that a smaller example is a simpler one.
EVENTS = st.sampled_from(
    [
        *dict.fromkeys(event for _, event in MOVES),
        *("start", "start", "finish", "expire", "redrive", "claim", "enqueue"),
    ]
)
# How far the attempt is off; and whether its start is recorded with the event.
OFF = st.sampled_from([0, 0, 0, 0, 0, -1, 1])
CHANGES = st.tuples(PICK, EVENTS, OFF, st.booleans())
# What comes next, by number among what may.
CHOICES = st.lists(PICK, min_size=1, max_size=6)
DELAYS = st.sampled_from([None, timedelta(0), HOUR])
LIMITS = st.sampled_from([1, 2, 3, 6])
CLAIMED_TYPES = st.sampled_from([(ONE, TWO), (ONE, TWO), (ONE,), (TWO,)])
_RESPONSE = ResponseData(content_type="application/json", data=b"1", size=1)


class Holders(Actors):
    @rule(pick=PICK, alive=st.booleans(), limit=LIMITS, types=CLAIMED_TYPES)
    def claim_some(self, pick, alive, limit, types):
        self.claim(self.alive(pick) if alive else self.name(pick), limit, types)

    def claim(self, name, limit, types):
        host = self.hosts[name]
        over = self.model.daemons.get(name)
        if over and self.store.lock_folder is not None:
            return  # it is dead: where the lease is a lock, nothing else ends it
        if over is not False:
            with pytest.raises(LeaseLost):
                host.claim(limit, types)
            return
        now = self.store.now()
        due = {type: self.model.due(type, now) for type in types}
        has_late = any(item.is_late(now) for item in self.model.items.values())
        claimed = host.claim(limit, types)
        self._check_claim(claimed, due, limit, has_late)
        for task in claimed:
            item = self.model.items[task.instance]
            item.claim(name)
            assert task.number == item.attempt, item
            for field in ("retries", "restarts", "lost"):
                assert getattr(task, field) == getattr(item, field), f"{field} of {item}"
        self._see_missed(now)

    def _check_claim(self, claimed, due, limit, has_late):
        """In order within a lane, as many as there are, and an even share of each Type."""
        of_type = {type: [t.instance for t in claimed if t.type == type] for type in due}
        for type, keys in of_type.items():
            assert keys == [item.key for item in due[type]][: len(keys)], "order (G8)"
        total = sum(len(items) for items in due.values())
        assert len(claimed) <= min(limit, total)
        if has_late:
            return  # what is too late may have been looked at instead
        assert len(claimed) == min(limit, total)
        ready = [type for type, items in due.items() if items]
        share = -(-limit // len(ready)) if ready else 0
        if any(len(of_type[type]) > share for type in ready):
            assert all(len(of_type[type]) >= min(share, len(due[type])) for type in ready)

    def _see_missed(self, now):
        """A claim may have failed what is too late, and nothing else."""
        late = {item.key: item for item in self.model.items.values() if item.is_late(now)}
        failed = Instance.objects.filter(pk__in=late, state="FAILED")
        for key in failed.values_list("pk", flat=True):
            late[key].by_anyone("fail", "MISSED")

    @precondition(lambda self: bool(self.model.live()))
    @rule(pick=PICK, choices=CHOICES, delay=DELAYS)
    def live(self, pick, choices, delay):
        """What may happen next to one Instance, for a while: the course of things."""
        live = self.model.live()
        item = live[-1 - pick % len(live)]
        for choice in choices:
            if item.holder:
                self._go_on(item, choice, delay)
            elif item.is_live:
                self.claim(self.alive(choice), 6, (ONE, TWO))
            self.step_is_done()

    def _go_on(self, item, choice, delay):
        may = [(event, False) for state, event in MOVES if state == item.state]
        if item.state == "SCHEDULED":
            may += [("start", False)] * 3
            may += [(event, True) for state, event in MOVES if state == "RUNNING"]
        event, started = may[choice % len(may)]
        self._record(item.holder, [(item, event, 0, started)], delay)

    @precondition(lambda self: any(item.holder for item in self.model.items.values()))
    @rule(pick=PICK, events=st.lists(st.tuples(EVENTS, OFF), min_size=1, max_size=3))
    def record_as_holder(self, pick, events):
        """Anything, of attempts that may be others."""
        held = [item for item in self.model.items.values() if item.holder]
        item = held[pick % len(held)]
        self._record(item.holder, [(item, event, off, False) for event, off in events], None)

    @rule(who=PICK, changes=st.lists(CHANGES, min_size=1, max_size=6), delay=DELAYS)
    def record(self, who, changes, delay):
        """A batch as any daemon, also one that is gone, of anything, in whatever order."""
        chosen = [(self.item(pick), event, off, start) for pick, event, off, start in changes]
        self._record(self.name(who), chosen, delay)

    def _record(self, name, chosen, delay):
        self.is_timed = not self.is_timed  # what a daemon records, it has timed; others need not
        changes, expected = [], []
        for item, event, off, started in chosen:
            change = self._change(item, event, off, started, delay)
            details = {"started": started, "reason": change.reason, "delay": change.delay}
            changes.append(change)
            if not item.by_holder(name, change.attempt, event, **details):
                expected.append(change)
            elif change.response is not None:
                item.has_response = True
        assert self.hosts[name].record(*changes) == expected

    def _change(self, item, event, off, started, delay):
        return Move(
            event=Event(event),
            instance=item.key,
            attempt=max(0, item.attempt + off),
            started=next(self.times) if started else None,
            time=next(self.times) if self.is_timed else None,
            reason="ERROR" if event == "fail" else "",
            delay=delay if event in ("retry", "defer") else None,
            response=_RESPONSE if event == "finish" else None,
        )

    @rule(pick=PICK, who=PICK, off=st.sampled_from([0, 0, -1]), held=st.booleans())
    def note(self, pick, who, off, held):
        item = self.item(pick)
        name = item.holder if held and item.holder else self.name(who)
        text = next(self.texts)
        said = Message(time=self.store.now(), level=logging.INFO, text=text)
        attempt = max(0, item.attempt + off)
        note = ProgressUpdate(instance=item.key, attempt=attempt, progress=0.5, messages=(said,))
        refused = self.store.records.note([note], daemon=self.hosts[name].uuid)
        accepted = item.holder is not None and item.is_held(name, attempt)
        assert refused == ([] if accepted else [note])
        if accepted:
            item.progress = 0.5
            item.said.append(text)


class Operators(Actors):
    @rule(pick=PICK, event=st.sampled_from(["fail", "redrive", "redrive", *Event.values]))
    def act(self, pick, event):
        failed = [item for item in self.model.items.values() if item.state == "FAILED"]
        item = failed[pick % len(failed)] if event == "redrive" and failed else self.item(pick)
        reason = "CANCELLED" if event == "fail" else ""
        refused = self.world.as_anyone(Event(event), item.key, reason=reason)
        assert (refused == []) == item.by_anyone(event, reason)

    @rule(pick=PICK)
    def request(self, pick):
        item = self.item(pick)
        assert self.store.control.request(item.key, RELEASE, who="somebody") == item.ask(RELEASE)

    @rule(picks=st.lists(PICK, min_size=1, max_size=4))
    def cancel(self, picks):
        keys = sorted({self.item(pick).key for pick in picks})
        became = {key: self.model.items[key].cancel() for key in keys}
        done = self.store.control.cancel(keys, who="somebody")
        for field in ("failed", "asked", "before"):
            assert getattr(done, field) == tuple(key for key in keys if became[key] == field)

    @rule(
        pick=PICK,
        priority=st.sampled_from([None, None, 0, 1]),
        due=st.sampled_from([None, HOUR, -HOUR]),
    )
    def change(self, pick, priority, due):
        """What waits, and nothing else; never to a time at which it could not start any more."""
        item = self.item(pick)
        due = None if due is None else self.store.now() + due
        changes = Changes(priority=priority, due=due)
        is_too_late = due is not None and item.start_before is not None and due >= item.start_before
        if item.waits and is_too_late:
            with pytest.raises(InvalidOption):
                self.store.control.change([item.key], changes, who="somebody")
            return
        said = self.store.control.change([item.key], changes, who="somebody")
        assert list(said) == [item.key] * item.waits
        if item.waits:
            item.priority = item.priority if priority is None else priority
            item.due = due or item.due

    @rule(picks=st.lists(PICK, max_size=3))
    def purge_some(self, picks):
        """Only what has ended goes."""
        keys = {self.item(pick).key for pick in picks}
        ended = [key for key in keys if not self.model.items[key].is_live]
        assert self.store.removal.purge(instances=sorted(keys)) == len(ended)
        for key in ended:
            del self.model.items[key]

    def purge(self, pick):
        ended = [i.key for i in self.model.items.values() if i.type == TWO and not i.is_live]
        assert self.store.removal.purge() == len(ended)
        for key in ended:
            del self.model.items[key]

    def miss(self, pick):
        now = self.store.now()
        late = [item for item in self.model.items.values() if item.is_late(now)]
        assert self.store.claims.miss(who="tests") == len(late)
        for item in late:
            item.by_anyone("fail", "MISSED")

    def time_passes(self, pick):
        """Two hours, for what waits."""
        passed = 2 * HOUR
        for model in (Task, Instance):
            rows = model.objects.filter(start_before__isnull=False)
            rows.update(start_before=F("start_before") - passed)
        Task.objects.update(due_at=F("due_at") - passed)
        for item in self.model.items.values():
            if item.is_live:
                item.due -= passed
            if item.start_before is not None:
                item.start_before -= passed


# What happens less often than that something is enqueued, claimed or done.
SELDOM = [
    *("look", "time_passes", "miss", "purge", "purge"),
    *("join_another", "join_again", "renew", "lose_lease", "leave"),
]


class Queue(Applications, Operators, Daemons, Holders):
    """All of them together; what a step has done is compared after it."""

    @rule(verb=st.sampled_from(SELDOM), pick=PICK)
    def now_and_then(self, verb, pick):
        getattr(self, verb)(pick)
