"""Claims that stay on their way in the server for as long as a test wants."""

import contextlib

from django.db import connection

from tests.helpers import wait_for

# Whoever has this advisory lock keeps claims on their way. They do not wait for the lock, as
# a daemon waits for no lock for long: they sleep, and look again.
_KEY = 4711
_TRIGGER = f"""
CREATE FUNCTION keep_claims() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    WHILE EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = {_KEY}) LOOP
        PERFORM pg_sleep(0.02);
    END LOOP;
    RETURN NEW;
END $$;
CREATE TRIGGER keep_claims BEFORE INSERT ON atp_logrecord
    FOR EACH ROW WHEN (NEW.kind = 'claim') EXECUTE FUNCTION keep_claims()
"""
_ON_ITS_WAY = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"


@contextlib.contextmanager
def slow_claims():
    """Keep claims on their way; yields what waits for one, and what lets them go on."""

    def one_is_on_its_way():
        wait_for(lambda: _ask(_ON_ITS_WAY), what="a claim on its way")

    def go_on():
        _ask(f"SELECT pg_advisory_unlock({_KEY})")

    with connection.cursor() as cursor:
        cursor.execute(_TRIGGER)
    _ask(f"SELECT pg_advisory_lock({_KEY}) IS NULL")
    try:
        yield one_is_on_its_way, go_on
    finally:
        go_on()
        with connection.cursor() as cursor:
            cursor.execute("DROP TRIGGER keep_claims ON atp_logrecord; DROP FUNCTION keep_claims()")


def _ask(statement):
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchone()[0]
