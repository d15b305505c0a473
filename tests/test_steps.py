"""Tests of steps in a handler that is called without a daemon, and of how steps are shown."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import Group

from atp import queue
from atp.exceptions import DoubledStep, InvalidStep
from atp.models import Step
from atp.reports import documents
from atp.states import State

from .helpers import shell
from .populated import MARKUP


def test_step_and_sleep_without_a_daemon_return_at_once(context):
    """G13: an invalid name or duration of a step is refused."""
    assert context.step("add", lambda a, b: a + b, 1, b=2) == 3
    assert context.step("pair", lambda: (1, 2)) == [1, 2]  # as a later attempt reads it
    with pytest.raises(ZeroDivisionError):
        context.step("bad", lambda: 1 / 0)
    for name in ("", "a\nb", "a" * 201, 5, None, "\x00"):
        with pytest.raises(InvalidStep):
            context.step(name, int)
    context.sleep(timedelta(days=1))
    context.sleep(3600, name="again")
    with pytest.raises(DoubledStep, match="'sleep'"):
        context.sleep(1)
    with pytest.raises(DoubledStep, match="uses the name 'add' for two steps"):
        context.step_in_transaction("add", int)
    for duration in (0, -1, float("nan"), float("inf"), 4e8, timedelta(0)):
        with pytest.raises(ValueError, match="sleep"):
            context.sleep(duration)


@pytest.mark.django_db
def test_step_in_transaction_commits_or_rolls_back_its_function(context):
    """A step that is a ``with`` block can have a result, too."""
    name = context.step_in_transaction("book", lambda: Group.objects.create(name="a").name)
    assert name == "a"
    with pytest.raises(ZeroDivisionError):
        context.step_in_transaction("fail", lambda: Group.objects.create(name="b") and 1 / 0)
    assert [group.name for group in Group.objects.all()] == ["a"]
    with context.step_in_transaction("block") as step:
        assert not step.is_done
        step.result = (1, 2)
    assert step.result == [1, 2]


@pytest.mark.slow
def test_each_user_interface_shows_steps(full, admin_client):
    """G14: names and results of steps are escaped.

    One step is done, one sleeps, and one has no known result.
    """
    finished = full[State.FINISHED]

    def page(address):
        return admin_client.get(address).content.decode()

    shown = page(f"/atp/instances/{finished.uuid}/")
    table = shown[shown.index("<h2>Steps</h2>") :].partition("</table>")[0]
    assert (table.count("<tr>"), MARKUP in table) == (4, False)
    assert "a sleep until" in table
    assert "not known" in table
    told = shell("show", str(finished.uuid)).partition("\nsteps\n")[2].splitlines()
    assert told[0].startswith(f"  {MARKUP}")
    assert '{"said": ' in told[0]
    assert "a sleep until" in told[1]
    assert "result not known" in told[2]
    shown = page(f"/admin/atp/instance/{finished.pk}/change/")
    for row in queue.steps(finished):
        assert f"/admin/atp/step/{row.pk}/change/" in shown
        assert MARKUP not in page(f"/admin/atp/step/{row.pk}/change/")
    # A long result is shortened for a table.
    Step.objects.update(data="9" * 100_000)
    [first, *_] = documents.abbreviate_steps(queue.steps(finished), 5)
    assert first.text == "9" * (documents.STEP_TEXT_SHOWN - 1) + "…"
