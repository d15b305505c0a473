"""What the handlers of the benchmarks write."""

from django.db import models


class Counter(models.Model):
    """A row that a handler reads, changes and saves."""

    value = models.IntegerField(default=0)

    class Meta:
        # Peers save rows of it in projects of which the benchmarks are no app.
        app_label = "benchmarks"

    def __str__(self):
        return f"{self.pk}: {self.value}"


def add_one(key):
    """Read a row, add one to it and save it: what a handler of the ORM's does."""
    row = Counter.objects.get(pk=key)
    row.value += 1
    row.save()
