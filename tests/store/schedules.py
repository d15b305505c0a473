"""Schedules under test: how they are set, and a moment at which no slot comes by chance."""

from atp.models import Schedule
from atp.payload.codec import Payload
from atp.store.facts import ScheduleSpec

from ..clock import wait_for_moment
from .world import ONE, TWO, registration

NAME = "nightly"


def spec(identifier=NAME, *, type=ONE, **given):
    return ScheduleSpec(identifier=identifier, type=type, inputs=Payload("json", "{}"), **given)


def prepare(world):
    """Remove the schedules that the code of the tests declares, and wait for a good moment.

    A minute or an hour that began in the middle of a test would be one slot more, and a slot of
    ten minutes or of an hour that has just come would be in time.
    """
    Schedule.objects.all().delete()
    world.store.types.register([registration(ONE), registration(TWO)])
    wait_for_moment(world.store.now, _is_within, "a moment well within a minute and hour")


def _is_within(now):
    return now.second < 52 and now.minute % 10 > 0 and now.minute < 59
