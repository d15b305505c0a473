"""Applications: they enqueue."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from atp.exceptions import DuplicateIdentifier
from atp.payload.codec import Payload
from atp.store.values import Submission

from ..model import Item, Pending
from ..world import ONE, TWO
from .base import HOUR, MOST_LIVE, TYPES, Actors


class Applications(Actors):
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
        request = Submission(
            inputs=Payload("json", "{}"), priority=priority, due=due, start_before=start_before
        )
        for instance in self.store.enqueue(TYPES[type], [request] * number, who="tests"):
            item = Item(instance.pk, type, priority, due or Pending(), None, start_before)
            self.model.items[instance.pk] = item

    @rule(
        type=st.sampled_from([ONE, TWO]),
        identifier=st.sampled_from(["a", "b"]),
        existing=st.sampled_from(["raise", "return", "redrive"]),
    )
    def enqueue_identified(self, type, identifier, existing):
        request = Submission(inputs=Payload("json", "{}"), identifier=identifier, existing=existing)
        taken = self.model.identified(type, identifier)
        if taken is not None and existing == "raise":
            with pytest.raises(DuplicateIdentifier):
                self.store.enqueue(TYPES[type], [request])
            return
        [instance] = self.store.enqueue(TYPES[type], [request])
        if taken is None:
            item = Item(instance.pk, type, identifier=identifier)
            self.model.items[instance.pk] = item
            return
        assert instance.pk == taken.key
        if existing == "redrive":
            taken.by_anyone("redrive")
