"""The migrations say what the models say."""

import pytest
from django.core.management import call_command
from django.db import IntegrityError, connection


@pytest.mark.django_db
def test_there_is_nothing_to_migrate(capsys):
    call_command("makemigrations", "--check", "--dry-run", "atp")
    assert "No changes" in capsys.readouterr().out


@pytest.mark.django_db
def test_types_are_registered_when_the_database_is_migrated():
    from atp.models import Type

    call_command("migrate", verbosity=0)
    assert Type.objects.filter(identifier="tests.echo").exists()


@pytest.mark.django_db(transaction=True)
def test_they_can_be_taken_back_and_applied_again():
    try:
        call_command("migrate", "atp", "zero", verbosity=0)
        assert not [t for t in connection.introspection.table_names() if t.startswith("atp_")]
    finally:
        call_command("migrate", verbosity=0)


@pytest.mark.django_db(transaction=True)
def test_a_condition_that_was_a_function_becomes_a_domain():
    if connection.vendor != "postgresql":
        pytest.skip("only PostgreSQL had a function")
    try:
        call_command("migrate", "atp", "0012", verbosity=0)
        with connection.cursor() as cursor:
            cursor.execute(AS_A_FUNCTION)
        call_command("migrate", verbosity=0)
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT to_regtype('atp_instance_valid')::text,"
                " to_regprocedure('atp_instance_valid(atp_instance)')"
            )
            assert cursor.fetchone() == ("atp_instance_valid", None)
            with pytest.raises(IntegrityError, match="atp_instance_valid"):
                cursor.execute(
                    "INSERT INTO atp_instance (type_id, uuid, state, reason, collection, priority,"
                    " attempt, restarts, retries, lost, progress_message, created_by, created)"
                    " VALUES (1, gen_random_uuid(), 'DONE', '', '', 0, 0, 0, 0, 0, '', '', now())"
                )
    finally:
        call_command("migrate", verbosity=0)


# As 0010 made it once, but for the words of the condition.
AS_A_FUNCTION = """
ALTER TABLE atp_instance DROP CONSTRAINT atp_instance_valid;
DROP DOMAIN atp_instance_valid;
CREATE FUNCTION atp_instance_valid (atp_instance atp_instance) RETURNS boolean
    LANGUAGE plpgsql IMMUTABLE AS $$BEGIN RETURN atp_instance.state <> 'DONE'; END$$;
ALTER TABLE atp_instance ADD CONSTRAINT atp_instance_valid CHECK (atp_instance_valid(atp_instance))
"""
