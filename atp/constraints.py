"""What the database itself refuses of an Instance.

PostgreSQL keeps the condition of a check constraint as text, and reads it anew in every
statement that writes to the table, for one row as for a thousand, token by token. Those of
Instance, in the fewest words that were found, took a quarter of what the server has to do
for an enqueue. What stands in a domain it reads once a session, and needs no language
around it: as a function the same condition took 10 to 20 µs more of an enqueue of 370.
"""

from django.db.models import CheckConstraint, Q
from django.db.models.sql.query import Query

from .options import MAX_PRIORITY, MIN_PRIORITY
from .states import TERMINAL, Reason, State


class CheckByDomain(CheckConstraint):
    """A check constraint that is, on PostgreSQL, one of a domain of rows; elsewhere itself.

    The domain and its constraint have the name of the constraint. It goes with its
    constraint, and with its table.
    """

    def constraint_sql(self, model, schema_editor):
        if schema_editor.connection.vendor != "postgresql":
            return super().constraint_sql(model, schema_editor)
        # The domain is of rows of the table, so the table is first.
        schema_editor.deferred_sql.append(self.create_sql(model, schema_editor))
        return None

    def create_sql(self, model, schema_editor):
        if schema_editor.connection.vendor != "postgresql":
            return super().create_sql(model, schema_editor)
        name = schema_editor.quote_name(self.name)
        table = schema_editor.quote_name(model._meta.db_table)
        condition = self._condition_of_row(model, schema_editor)
        return (
            f"CREATE DOMAIN {name} AS {table} CONSTRAINT {name} CHECK ({condition});\n"
            # A row is never NULL itself: that the cast is refused is what it is for.
            f"ALTER TABLE {table} ADD CONSTRAINT {name}"
            f" CHECK (CAST({table} AS {name}) IS DISTINCT FROM NULL)"
        )

    def remove_sql(self, model, schema_editor):
        if schema_editor.connection.vendor != "postgresql":
            return super().remove_sql(model, schema_editor)
        name = schema_editor.quote_name(self.name)
        table = schema_editor.quote_name(model._meta.db_table)
        return f"ALTER TABLE {table} DROP CONSTRAINT {name};\nDROP DOMAIN {name}"

    def _condition_of_row(self, model, schema_editor):
        """Return the condition with every column as a field of the row."""
        query = Query(model=model)
        where = query.build_where(self.condition)
        compiler = query.get_compiler(connection=schema_editor.connection)
        sql, parameters = where.as_sql(compiler, schema_editor.connection)
        # What is compared with stands not yet in it.
        sql = sql.replace(f"{schema_editor.quote_name(model._meta.db_table)}.", "(VALUE).")
        return sql % tuple(schema_editor.quote_value(value) for value in parameters)


def _outcome():
    """A state that there is, with a reason that there is if it is FAILED, else with none."""
    others = [state for state in State if state != State.FAILED]
    return Q(state__in=others, reason="") | Q(state=State.FAILED, reason__in=list(Reason))


def _end():
    """What has ended says when; the conditions of indexes rely on it."""
    ended = Q(state__in=sorted(TERMINAL))
    return Q(ended, finished__isnull=False) | Q(~ended, finished__isnull=True)


def _numbers():
    counts = ("attempt", "restarts", "retries", "lost")
    not_negative = Q(**{f"{count}__gte": 0 for count in counts})
    return Q(priority__gte=MIN_PRIORITY, priority__lte=MAX_PRIORITY) & not_negative


OF_INSTANCE = [CheckByDomain(condition=_outcome() & _end() & _numbers(), name="atp_instance_valid")]
