"""A Type that is renamed keeps its unique keys and identifiers, whichever name enqueues."""

import pytest

from atp.exceptions import DuplicateIdentifier, UniqueTaken
from atp.models import Instance, Type
from atp.payload.codec import Payload
from atp.rows.type import families
from atp.store.values import Submission

from ..helpers import at_once
from .world import registration

pytestmark = pytest.mark.django_db

OLD, NEW, OTHER = "dep.old", "dep.new", "dep.other"


@pytest.fixture
def store(world):
    world.store.register([registration(OLD), registration(OTHER)])
    return world.store


def rename(store):
    store.register([registration(NEW, formerly=(OLD,))])


def enqueue(store, type, existing="raise", **given):
    submission = Submission(inputs=Payload("json", "{}"), existing=existing, **given)
    [instance] = store.enqueue(registration(type), [submission])
    return instance


NAMES = pytest.mark.parametrize(("first", "second"), [(OLD, NEW), (NEW, OLD)])
KEYS = pytest.mark.parametrize(
    ("given", "error"),
    [({"unique": "customer-7"}, UniqueTaken), ({"identifier": "order-7"}, DuplicateIdentifier)],
)


@KEYS
def test_what_was_enqueued_before_the_rename_has_its_key(store, given, error):
    made = enqueue(store, OLD, **given)
    rename(store)
    with pytest.raises(error):
        enqueue(store, NEW, **given)
    again = enqueue(store, NEW, "return", **given)
    assert (again.pk, Instance.objects.count()) == (made.pk, 1)


@NAMES
@KEYS
def test_old_and_new_releases_share_keys(store, first, second, given, error):
    rename(store)
    made = enqueue(store, first, **given)
    with pytest.raises(error):
        enqueue(store, second, **given)
    [again, plain] = store.enqueue(
        registration(second),
        [
            Submission(inputs=Payload("json", "{}"), existing="return", **given),
            Submission(inputs=Payload("json", "{}")),
        ],
    )
    assert (again.pk, plain.is_new) == (made.pk, True)
    assert enqueue(store, OTHER, **given).is_new


def test_names_of_several_releases_are_one_type(store):
    rename(store)
    store.register([registration("dep.newest", formerly=(NEW,))])
    rename(store)  # a daemon of the release in between starts
    made = enqueue(store, OLD, identifier="order-7")
    assert enqueue(store, "dep.newest", "return", identifier="order-7").pk == made.pk
    keys = set(
        Type.objects.filter(identifier__in=[OLD, NEW, "dep.newest"]).values_list("pk", flat=True)
    )
    assert set(families(Type.objects.all()).values()) == {frozenset(keys)}


@pytest.mark.django_db(transaction=True)
def test_both_names_at_once(store):
    """One of them waits for the other's commit."""
    rename(store)
    calls = [
        lambda name=name: enqueue(store, name, "return", identifier="order-7")
        for name in (OLD, NEW)
    ]
    at_once(*calls)
    assert Instance.objects.filter(identifier="order-7").count() == 1
