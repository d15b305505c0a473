"""Steps of a handler that is called without a daemon, and how steps are shown."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import Group
from django.core.management import call_command

from atp import queue
from atp.exceptions import DoubledStep, InvalidStep, UncheckedStep, UnusableResult
from atp.models import Step
from atp.reports import steps
from atp.states import State

from .populated import MARKUP, populate, world_in


class TestWithoutADaemon:
    """Handlers can be called by tests: nothing is kept, and no time passes."""

    def test_a_step_calls_its_function(self, context):
        assert context.step("add", lambda a, b: a + b, 1, b=2) == 3

    def test_a_result_is_as_a_later_attempt_has_it(self, context):
        assert context.step("pair", lambda: (1, 2)) == [1, 2]

    def test_a_result_that_cannot_be_kept(self, context):
        """G13."""
        with pytest.raises(UnusableResult, match="step 'bad'"):
            context.step("bad", object)

    def test_what_the_function_raises(self, context):
        with pytest.raises(ZeroDivisionError):
            context.step("bad", lambda: 1 / 0)

    def test_a_sleep_is_over(self, context):
        context.sleep(timedelta(days=1))
        context.sleep(3600, name="again")

    @pytest.mark.parametrize("duration", [0, -1, float("nan"), float("inf"), 4e8, timedelta(0)])
    def test_a_sleep_of_no_sense(self, context, duration):
        """G13."""
        with pytest.raises(ValueError, match="sleep"):
            context.sleep(duration)

    @pytest.mark.django_db
    def test_a_step_in_a_transaction(self, context):
        name = context.step_in_transaction("book", lambda: Group.objects.create(name="a").name)
        assert name == "a"
        with pytest.raises(ZeroDivisionError):
            context.step_in_transaction("fail", lambda: Group.objects.create(name="b") and 1 / 0)
        assert [group.name for group in Group.objects.all()] == ["a"]

    @pytest.mark.django_db
    def test_a_block_has_to_look(self, context):
        """G13: it would run in each attempt; nothing is written."""
        with (
            pytest.raises(UncheckedStep, match="is_done"),
            context.step_in_transaction("book"),
        ):
            Group.objects.create(name="a")
        assert not Group.objects.exists()

    @pytest.mark.django_db
    def test_a_block_may_have_a_result(self, context):
        with context.step_in_transaction("book") as step:
            assert not step.is_done
            step.result = (1, 2)
        assert step.result == [1, 2]


class TestNames:
    """G13."""

    def test_each_once(self, context):
        context.step("a", int)
        with pytest.raises(DoubledStep, match="'a' is used twice"):
            context.step_in_transaction("a", int)

    def test_a_second_sleep_has_another(self, context):
        context.sleep(1)
        with pytest.raises(DoubledStep, match="'sleep'"):
            context.sleep(1)

    def test_a_key_makes_another(self, context):
        results = [context.step("a", int, number, key=number) for number in range(3)]
        assert results == [0, 1, 2]
        with pytest.raises(DoubledStep, match=r"a\[1\]"):
            context.step("a", int, key=1)

    @pytest.mark.parametrize("name", ["", "a\nb", "a" * 201, 5, None, "\x00"])
    def test_of_no_sense(self, context, name):
        with pytest.raises(InvalidStep):
            context.step(name, int)


@pytest.fixture
def finished(db, tmp_path, media):
    """An Instance with three steps: one done, one asleep, one of which nothing is known."""
    with world_in(tmp_path) as world:
        yield populate(world)[State.FINISHED]


def test_the_page_shows_them(finished, admin_client):
    """G14: whatever is in them, it is text."""
    page = admin_client.get(f"/atp/instances/{finished.uuid}/").content.decode()
    table = page[page.index("<h2>Steps</h2>") :].partition("</table>")[0]
    assert table.count("<tr>") == 4
    assert MARKUP not in table
    assert "a sleep until" in table
    assert "not known" in table


def test_the_shell_shows_them(finished, capsys):
    call_command("atp", "show", str(finished.uuid))
    told = capsys.readouterr().out.partition("\nsteps\n")[2].splitlines()
    assert told[0].startswith(f"  {MARKUP}")
    assert '{"said": ' in told[0]
    assert "a sleep until" in told[1]
    assert "result not known" in told[2]


def test_the_admin_shows_them(finished, admin_client):
    page = admin_client.get(f"/admin/atp/instance/{finished.pk}/change/").content.decode()
    for row in queue.steps(finished):
        assert f"/admin/atp/step/{row.pk}/change/" in page
    assert MARKUP not in admin_client.get(f"/admin/atp/step/{row.pk}/change/").content.decode()


def test_a_table_reads_no_more_of_a_result_than_it_shows(finished):
    Step.objects.update(data="9" * 100_000)
    [first, *_] = steps.abbreviated(queue.steps(finished), 5)
    assert first.text == "9" * (steps.SHOWN - 1) + "…"
