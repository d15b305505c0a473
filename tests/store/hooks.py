"""Hooks under test: Types that have some, and what must always be true of them."""

import json
from collections import Counter

from atp import options
from atp.models import Inputs, Instance, Kind, LogRecord
from atp.states import Event, State

from .world import registration

STATES = {"on_finished": State.FINISHED, "on_failed": State.FAILED}
HOOKED, ALERT, INDEX = "store.hooked", "store.alert", "store.index"
BOTH = [{"on": "on_failed", "type": ALERT}, {"on": "on_finished", "type": INDEX}]


def hooked(**parameters):
    """Return the Registration of a Type with a hook for either end; its hooks are registered."""
    return registration(HOOKED, hooks=BOTH, hook_types=HOOK_TYPES, **parameters)


HOOK_TYPES = registration(ALERT), registration(INDEX)


def own_hooks(*entries):
    """Return what an Instance has of its own that has these hooks."""
    return options.own_options(hooks=list(entries))


def hooks_of(key):
    """Return the inputs of all hooks of an Instance, with the Type of each, oldest first."""
    uuid = str(Instance.objects.get(pk=key).uuid)
    found = Instance.objects.filter(type__identifier__in=(ALERT, INDEX)).order_by("pk")
    inputs = dict(Inputs.objects.values_list("pk", "data"))
    given = [(each.type.identifier, json.loads(inputs[each.pk])) for each in found]
    return [(type, data) for type, data in given if data["uuid"] == uuid]


def check():
    """Each end has each of its hooks once, and each hook is of an end that the log has."""
    kinds = LogRecord.objects.filter(instance__isnull=False)
    ends, said = Counter(), Counter()
    for record in kinds.filter(state__in=(State.FINISHED, State.FAILED), kind__in=Event.values):
        ends[record.instance_id, record.state] += 1
    for record in kinds.filter(kind=Kind.HOOK).exclude(detail=""):
        said[record.instance_id, record.state] += 1
        assert Instance.objects.filter(uuid=record.detail).exists()
    for instance in Instance.objects.select_related("type"):
        if instance.hook_of is not None:
            assert not said[instance.pk, State.FINISHED] + said[instance.pk, State.FAILED]
            continue
        entries = [*(instance.type.hooks or ()), *((instance.own or {}).get(options.HOOKS, ()))]
        for name, state in STATES.items():
            wanted = len({entry["type"] for entry in entries if entry["on"] == name})
            assert said[instance.pk, state] == wanted * ends[instance.pk, state], instance
    written = Instance.objects.filter(own__has_key=options.HOOK_OF)
    uuids = {str(uuid) for uuid in Instance.objects.values_list("uuid", flat=True)}
    assert sum(each.hook_of in uuids for each in written) == sum(said.values())
