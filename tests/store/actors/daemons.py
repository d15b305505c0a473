"""Daemons: they come, go, get lost, and take others' Tasks away."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from atp.exceptions import LeaseLost
from atp.models import Instance

from ..world import LEASE, ONE, Host
from .base import DAEMONS, PICK, TYPES, Actors

LIMITS = st.sampled_from([500, 2, 1])


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
        host = self.hosts[new] = Host(self.world, tuple(TYPES), new)
        self.world.hosts.append(host)
        answer = host.join(old=self.hosts[old].uuid, holding=sorted(holding))
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
                self.store.renew(host.uuid, lease=LEASE)
            return
        self.store.renew(host.uuid, lease=LEASE)
        if self.store.lock_folder is None:
            self.model.daemons[name] = False

    def lose_lease(self, pick):
        name = self.name(pick)
        if name in self.model.daemons:
            self.hosts[name].lose_lease()
            self.model.daemons[name] = True

    def leave(self, pick):
        name = self.name(pick)
        self.store.leave(self.hosts[name].uuid)
        self.model.leave(name)

    @rule(pick=PICK, lost=st.sampled_from([(), (0,), (1,), (0, 1)]), limit=LIMITS)
    def sweep(self, pick, lost, limit):
        """Of daemons that are lost, and perhaps just now."""
        for each in lost:
            self.lose_lease(each)
        name = self.name(pick) if pick % 2 else None
        swept = self.store.sweep(daemon=name and self.hosts[name].uuid, limit=limit)
        gone = self.model.lost_daemons(besides=name)
        uuids = {loss.uuid for loss in swept.lost}
        taken = list(Instance.objects.filter(uuid__in=uuids).values_list("pk", flat=True))
        could = [item.key for lost in gone for item in self.model.held_by(lost)]
        assert len(taken) == min(limit, len(could))
        assert set(taken) <= set(could)
        for key in taken:
            self.model.items[key].lose()
        self.model.forget_daemons(besides=name)

    def look(self, pick):
        name = self.name(pick)
        uuid = self.hosts[name].uuid
        now = self.store.now()
        seen = self.store.outlook([ONE], daemon=uuid)
        waiting = [i for i in self.model.items.values() if i.type == ONE and i.waits]
        assert (seen.due is not None) == bool(waiting)
        if waiting:
            assert (seen.due <= 0) == any(item.due <= now for item in waiting)
        assert seen.late == any(item.is_late(now) for item in self.model.items.values())
        assert seen.lost == bool(self.model.lost_daemons(besides=name))
        asked = {(a.instance, a.attempt, a.request) for a in self.store.asked(uuid)}
        held = self.model.held_by(name)
        assert asked == {(i.key, i.attempt, i.request) for i in held if i.request}
