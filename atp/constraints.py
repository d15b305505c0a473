"""What the database itself refuses of an Instance.

PostgreSQL keeps the condition of a check constraint as text, and reads it anew in every
statement that writes to the table, for one row as for a thousand, token by token. Those of
Instance, in the fewest words that were found, took a quarter of what the server has to do
for an enqueue. What stands in a function it reads once a session.
"""

from django.db.models import CheckConstraint, Q
from django.db.models.sql.query import Query

from .options import MAX_PRIORITY, MIN_PRIORITY
from .states import TERMINAL, Reason, State


class CheckByFunction(CheckConstraint):
    """A check constraint that is, on PostgreSQL, a function of the row; elsewhere itself.

    The function has the name of the constraint. It goes with its constraint, and with
    its table.
    """

    def constraint_sql(self, model, schema_editor):
        if schema_editor.connection.vendor != "postgresql":
            return super().constraint_sql(model, schema_editor)
        # The function takes a row of the table, so the table is first.
        schema_editor.deferred_sql.append(self.create_sql(model, schema_editor))
        return None

    def create_sql(self, model, schema_editor):
        if schema_editor.connection.vendor != "postgresql":
            return super().create_sql(model, schema_editor)
        function = schema_editor.quote_name(self.name)
        table = schema_editor.quote_name(model._meta.db_table)
        condition = self._condition_of_row(model, schema_editor)
        return (
            # Its one parameter has the name of the table, so that columns are its fields.
            f"CREATE OR REPLACE FUNCTION {function} ({table} {table}) RETURNS boolean"
            f" LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE"
            f" AS $check$BEGIN RETURN {condition}; END$check$;\n"
            f"ALTER TABLE {table} ADD CONSTRAINT {function} CHECK ({function}({table}))"
        )

    def remove_sql(self, model, schema_editor):
        if schema_editor.connection.vendor != "postgresql":
            return super().remove_sql(model, schema_editor)
        function = schema_editor.quote_name(self.name)
        table = schema_editor.quote_name(model._meta.db_table)
        return (
            f"ALTER TABLE {table} DROP CONSTRAINT {function};\nDROP FUNCTION {function} ({table})"
        )

    def _condition_of_row(self, model, schema_editor):
        """Return the condition with every column as a field of the table's row."""
        query = Query(model=model)
        where = query.build_where(self.condition)
        compiler = query.get_compiler(connection=schema_editor.connection)
        sql, parameters = where.as_sql(compiler, schema_editor.connection)
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


OF_INSTANCE = [
    CheckByFunction(condition=_outcome() & _end() & _numbers(), name="atp_instance_valid")
]
