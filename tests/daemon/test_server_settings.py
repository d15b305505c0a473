"""Settings that a role has on the server: a daemon relies on none of them (G1, G11)."""

import json

import pytest
from django.db import connection

from atp.models import LogRecord, Response
from atp.states import State

from ..app import tasks, tasks_daemon
from .scenario import on_postgresql

pytestmark = on_postgresql

# Of every session: how texts are read and written, and how statements are planned.
OF_EVERYBODY = {
    "usual": {
        "standard_conforming_strings": "off",
        "escape_string_warning": "off",
        "backslash_quote": "off",
        "bytea_output": "escape",
        "quote_all_identifiers": "on",
        "transform_null_equals": "on",
        "client_encoding": "LATIN1",
        "lc_messages": "C",
        "TimeZone": "Asia/Kolkata",
        "extra_float_digits": "-15",
        "plan_cache_mode": "force_custom_plan",
        "enable_seqscan": "off",
        "enable_indexscan": "off",
        "enable_nestloop": "off",
        "from_collapse_limit": "1",
        "jit_above_cost": "0",
        "default_transaction_isolation": "'repeatable read'",
    },
    "serializable": {"default_transaction_isolation": "serializable"},
}
# Of a daemon's sessions; with these an application would have to expect anything.
OF_DAEMONS = {
    # Some driver reads no times then, or no intervals.
    "DateStyle": "German, DMY",
    "IntervalStyle": "postgres_verbose",
    "array_nulls": "off",
    "default_transaction_read_only": "on",
    "lock_timeout": "1",
    "statement_timeout": "1",
    "idle_session_timeout": "150",
    "idle_in_transaction_session_timeout": "1",
}
SETTINGS = [*OF_EVERYBODY, "of a daemon's sessions"]
WORDS = "it's \\ \\' wrong ä $1"
TEXT = 'a\\b\\\\c\' "d" $1 $atp$ {NULL,x} 漢 \x01'


@pytest.fixture
def role(transactional_db):
    """Set something of this role, in this database, for every session that begins from now on."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT quote_ident(current_user), quote_ident(current_database())")
        user, database = cursor.fetchone()
        whose = f"ALTER ROLE {user} IN DATABASE {database}"

    def say(values):
        with connection.cursor() as cursor:
            for name, value in values.items():
                is_whole = "," in value or value.startswith("'")
                cursor.execute(f"{whose} SET {name} = {value if is_whole else repr(value)}")

    yield say
    with connection.cursor() as cursor:
        cursor.execute(f"{whose} RESET ALL")
    connection.close()


def run(atpd):
    """Run what needs each statement of a daemon; everything ends as it has to."""
    answered = tasks_daemon.answer.enqueue(kind="png", size=10)
    text = tasks.echo.enqueue(text=TEXT)
    many = tasks_daemon.noop.enqueue_many([{}] * 40)
    unkept = [tasks_daemon.unkept.enqueue() for _ in range(3)]
    failed = [tasks_daemon.error.enqueue(words=WORDS) for _ in range(3)]
    again = tasks_daemon.again.enqueue(times=3)
    daemon = atpd("--drain")
    assert daemon.wait() == 0, daemon.log_path.read_text()
    for state, instances in (
        (State.FINISHED, [answered, text, again, *many]),
        (State.FAILED, failed),
    ):
        for instance in instances:
            instance.refresh_from_db()
            assert instance.state == state, daemon.log_path.read_text()
    for instance in failed:
        last = LogRecord.objects.filter(instance=instance.pk).order_by("pk").last()
        assert WORDS in last.message, daemon.log_path.read_text()
    assert not type(text).objects.filter(pk__in=[each.pk for each in unkept])
    assert json.loads(_data(text)) == {"text": TEXT}
    assert _data(answered) == b"\x89PNG" + b"\x00" * 10
    return daemon


def _data(instance):
    return bytes(Response.objects.get(instance=instance.pk).data)


@pytest.mark.parametrize("values", [*OF_EVERYBODY.values(), OF_DAEMONS], ids=SETTINGS)
def test_daemon_relies_on_no_setting_of_the_server(atpd, role, values):
    role(values)
    if values is not OF_DAEMONS:
        connection.close()
    daemon = run(atpd)
    assert len(daemon.facts("joined")) == 1, daemon.log_path.read_text()
