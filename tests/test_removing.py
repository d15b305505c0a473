"""Removing Instances as a Django developer does: by ``delete()`` of a model or a QuerySet."""

import pytest
from django.db.models import ProtectedError

from atp import queue
from atp.exceptions import IllegalTransition
from atp.models import Instance, Task, Type

from .app.tasks import echo

pytestmark = pytest.mark.django_db


def ended():
    instance = echo.enqueue()
    queue.cancel(instance, by="the test")
    return Instance.objects.get(pk=instance.pk)


def test_a_live_one_is_not_removed():
    """G1: a daemon may be at work on it; the way to do it is named."""
    instance = echo.enqueue()
    with pytest.raises(IllegalTransition, match=r"queue\.delete\(instance, cancel=True\)"):
        instance.delete()
    assert Task.objects.filter(pk=instance.pk).exists()


def test_what_an_object_says_of_itself_may_be_old():
    instance = ended()
    queue.redrive(instance, by="the test")
    stale = Instance(pk=instance.pk, type=instance.type, state="FAILED", uuid=instance.uuid)
    with pytest.raises(IllegalTransition):
        stale.delete(using="default")


def test_a_selection_with_a_live_one_is_not_removed():
    done, live = ended(), echo.enqueue()
    with pytest.raises(IllegalTransition, match=str(live.uuid)):
        Instance.objects.filter(pk__in=[done.pk, live.pk]).delete()
    assert Instance.objects.count() == 2


def test_what_has_ended_is_removed():
    first, *rest = [ended() for _ in range(3)]
    first.delete()
    assert Instance.objects.filter(pk__in=[each.pk for each in rest]).delete()[0] >= 2
    assert not Instance.objects.exists()


def test_a_type_is_not_removed_with_its_instances():
    echo.enqueue()
    with pytest.raises(ProtectedError):
        Type.objects.get(identifier="tests.echo").delete()
