"""A check constraint that is a domain on PostgreSQL comes and goes as any other."""

import pytest
from django.db import IntegrityError, connection, models, transaction
from django.test.utils import isolate_apps

from atp.fields import CheckByDomain

NAME = "tests_only_small"


def check(most):
    return CheckByDomain(condition=models.Q(number__lte=most, word__in=["a", "50%"]), name=NAME)


@pytest.fixture
def model(transactional_db):
    """Return a model whose table is made as it is where there are no migrations."""
    with isolate_apps("tests.app"):

        class Checked(models.Model):
            number = models.IntegerField()
            word = models.TextField()

            class Meta:
                app_label = "app"
                constraints = [check(5)]

            def __str__(self):
                return self.word

        with connection.schema_editor() as editor:
            editor.create_model(Checked)
        try:
            yield Checked
        finally:
            with connection.schema_editor() as editor:
                editor.delete_model(Checked)
            assert not domains()


def domains():
    if connection.vendor != "postgresql":
        return []
    with connection.cursor() as cursor:
        cursor.execute("SELECT typname FROM pg_type WHERE typname = %s", [NAME])
        return [name for (name,) in cursor.fetchall()]


def remove(model):
    """Take the constraint away, as a migration does."""
    [old], model._meta.constraints = model._meta.constraints, []
    with connection.schema_editor() as editor:
        editor.remove_constraint(model, old)


def add(model, new):
    model._meta.constraints = [new]
    with connection.schema_editor() as editor:
        editor.add_constraint(model, new)


def refuses(model, **values):
    with pytest.raises(IntegrityError, match=NAME), transaction.atomic():
        model.objects.create(**values)


def test_it_is_made_removed_and_added_again(model):
    refuses(model, number=6, word="a")
    refuses(model, number=5, word="b")
    model.objects.create(number=5, word="50%")
    remove(model)
    assert not domains()
    made = model.objects.create(number=9, word="a")
    with pytest.raises(IntegrityError, match=NAME):
        add(model, check(7))  # what is there must fit
    assert not domains()
    made.delete()
    add(model, check(7))
    refuses(model, number=8, word="a")
    model.objects.create(number=7, word="a")


def test_columns_come_change_and_go_beside_it(model):
    model.objects.create(number=1, word="a")
    more = models.IntegerField(default=3)
    more.set_attributes_from_name("more")
    wider = models.CharField(max_length=7)
    wider.set_attributes_from_name("word")
    with connection.schema_editor() as editor:
        editor.alter_field(model, model._meta.get_field("word"), wider)
        editor.add_field(model, more)
        editor.remove_field(model, more)
    refuses(model, number=5, word="b")
    model.objects.update(number=2)
    with pytest.raises(IntegrityError, match=NAME), transaction.atomic():
        model.objects.update(number=6)
