"""What is in the database is what the model says, all of it."""

from collections import defaultdict

from atp.models import Daemon, Instance, LogRecord, Response, Task

from .model import Pending


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
