"""Random histories of one Instance against a model of the house plan's table (G6)."""

from dataclasses import dataclass, field

import pytest
from django.db import transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from atp.models import Instance
from atp.states import Event, Reason, State
from atp.store.values import RELEASE, Change

from .world import registration

MAX_RESTARTS = 1
A, B = "a", "b"


@dataclass
class Model:
    """The table once more, written from the house plan and not from atp.states."""

    state: str = "ACCEPTED"
    reason: str = ""
    holder: str | None = None
    attempt: int = 0
    restarts: int = 0
    retries: int = 0
    lost: int = 0
    asked: str = ""
    events: list = field(default_factory=lambda: ["enqueue"])

    def claim(self, daemon):
        if self.state != "ACCEPTED":
            return False
        self.state, self.holder = "SCHEDULED", daemon
        self.attempt += 1
        self.asked = ""
        return self._done("claim")

    def held(self, daemon, attempt, event):
        """An event that the daemon records under an attempt."""
        if self.holder != daemon or self.attempt != attempt:
            return False
        if event == "expire":
            return self.expire(daemon)
        moves = {
            ("SCHEDULED", "start"): "RUNNING",
            ("RUNNING", "pause"): "PAUSED",
            ("PAUSED", "resume"): "RUNNING",
            ("RUNNING", "finish"): "FINISHED",
            ("RUNNING", "retry"): "ACCEPTED",
            ("RUNNING", "defer"): "ACCEPTED",
            ("RUNNING", "fail"): "FAILED",
            ("SCHEDULED", "release"): "ACCEPTED",
            ("RUNNING", "release"): "ACCEPTED",
            ("PAUSED", "release"): "ACCEPTED",
        }
        if (self.state, event) not in moves:
            return False
        self.state = moves[self.state, event]
        self.retries += event == "retry"
        self.reason = "ERROR" if event == "fail" else ""
        self._done(event)
        if self.state not in ("RUNNING", "PAUSED"):
            self.holder = None
            self._honour()
        return True

    def _honour(self):
        """What goes back to the queue and was to be cancelled is."""
        is_cancelled, self.asked = self.asked == "cancel", ""
        if is_cancelled and self.state == "ACCEPTED":
            self.state, self.reason = "FAILED", "CANCELLED"
            self._done("fail")

    def expire(self, daemon):
        if self.holder != daemon:
            return False
        self.lost += 1
        self.restarts += self.state != "SCHEDULED"
        self.state, self.holder = "ACCEPTED", None
        self._done("expire")
        self._honour()
        if self.state == "FAILED":
            return True
        if self.restarts > MAX_RESTARTS or self.lost > MAX_RESTARTS + 10:
            self.state, self.reason = "FAILED", "STALE"
            self._done("fail")
        return True

    def anyone(self, event):
        if event == "fail" and self.state == "ACCEPTED":
            self.state, self.reason = "FAILED", "ERROR"
        elif event == "redrive" and self.state == "FAILED":
            self.state, self.reason = "ACCEPTED", ""
            self.restarts = self.retries = self.lost = 0
        else:
            return False
        return self._done(event)

    def request(self):
        if self.holder is None or self.asked == "cancel":
            return False
        self.asked = "release"
        return True

    def cancel(self):
        if self.state == "ACCEPTED":
            self.state, self.reason = "FAILED", "CANCELLED"
            self._done("fail")
            return "failed"
        if self.holder is None:
            return None
        was, self.asked = self.asked, "cancel"
        return "before" if was == "cancel" else "asked"

    def _done(self, event):
        self.events.append(event)
        return True


HELD = [
    *[Event.START] * 6,
    *[event for event in Event if event not in (Event.ENQUEUE, Event.CLAIM)],
]
DAEMONS = st.sampled_from([A, B])
STEPS = st.one_of(
    st.tuples(st.just("claim"), DAEMONS),
    st.tuples(st.just("claim"), DAEMONS),
    st.tuples(st.just("held"), DAEMONS, st.sampled_from([0, 0, 0, 1]), st.sampled_from(HELD)),
    st.tuples(st.just("holder"), st.sampled_from(HELD)),
    st.tuples(st.just("holder"), st.sampled_from(HELD)),
    st.tuples(st.just("anyone"), st.sampled_from([Event.FAIL, Event.REDRIVE, Event.FINISH])),
    st.tuples(st.just("sweep"), DAEMONS),
    st.tuples(st.just("request")),
    st.tuples(st.just("cancel")),
)


class Run:
    """One history on the store, beside the model."""

    def __init__(self, world):
        self.world = world
        self.model = Model()
        [self.key] = world.enqueue(type=registration(max_restarts=MAX_RESTARTS))
        self.hosts = {name: world.host(name=name) for name in (A, B)}

    def step(self, verb, *args):
        assert getattr(self, f"do_{verb}")(*args)
        self.compare()

    def do_claim(self, name):
        claimed = [c.instance for c in self.hosts[name].claim()]
        return (self.key in claimed) == self.model.claim(name)

    def do_holder(self, event):
        return self.do_held(self.model.holder or A, 0, event)

    def do_held(self, name, behind, event):
        attempt = self.model.attempt - behind
        change = Change(
            event=event,
            instance=self.key,
            attempt=attempt,
            reason=Reason.ERROR if event == Event.FAIL else "",
        )
        accepted = self.hosts[name].record(change) == []
        return accepted == self.model.held(name, attempt, event)

    def do_anyone(self, event):
        reason = Reason.ERROR if event == Event.FAIL else ""
        accepted = self.world.as_anyone(event, self.key, reason=reason) == []
        return accepted == self.model.anyone(event)

    def do_sweep(self, name):
        """The daemon is lost, and comes back under another identity."""
        self.hosts[name].lose_lease()
        swept = self.world.store.sweep()
        self.hosts[name] = self.world.host(name=name)
        return bool(swept.expired) == self.model.expire(name)

    def do_request(self):
        asked = self.world.store.request(self.key, RELEASE, who="somebody")
        return asked == self.model.request()

    def do_cancel(self):
        done = self.world.store.cancel([self.key], who="somebody")
        became = {"failed": done.failed, "asked": done.asked, "before": done.before}
        expected = self.model.cancel()
        return [name for name, keys in became.items() if keys] == [expected] * bool(expected)

    def compare(self):
        instance, model = Instance.objects.get(pk=self.key), self.model
        for name in ("state", "reason", "attempt", "restarts", "retries", "lost"):
            assert getattr(instance, name) == getattr(model, name), name
        task = self.world.task(self.key)
        assert (task is None) == (model.state in (State.FINISHED, State.FAILED))
        if task is not None:
            holder = task.daemon and task.daemon.host
            assert (holder, task.attempt) == (model.holder, model.attempt)
            assert task.request == model.asked
        assert self.world.events(self.key) == model.events


@pytest.mark.timeout(300)
@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(STEPS, min_size=5, max_size=25))
def test_random_histories_go_as_the_model_says(world, steps):
    """G6: only legal transitions, each logged exactly once; G4: under the fence."""
    with transaction.atomic():
        run = Run(world)
        for step in steps:
            run.step(*step)
        world.check()
        transaction.set_rollback(True)  # the next history has a queue of its own
