"""The migrations say what the models say."""

import pytest
from django.core.management import call_command
from django.db import connection


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
