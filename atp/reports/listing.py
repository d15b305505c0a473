"""A list of Instances beyond its page: its bounded numbers by state, and all its rows to export."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

from ..conf import settings
from ..exceptions import UnknownDaemon
from ..models import Daemon, Inputs, Instance, Type
from ..payload import codec
from ..querysets import InstanceQuerySet, RowCount
from ..states import State
from ..text import did_you_mean
from . import documents, paging

NEWEST_FIRST = ("-id",)
# The counts of a list stop here.
MOST_COUNTED = 1_000
# An export reads this many rows at a time, and has at most MOST_EXPORTED rows.
PORTION, MOST_EXPORTED = 500, 1_000_000
COLUMNS = (
    *("uuid", "type", "identifier", "collection", "state", "reason", "attempt"),
    *("created", "started", "finished", "created_by", "error"),
)
INPUTS = "inputs"
# A spreadsheet takes a cell that begins with one of these for a formula.
_FORMULA = ("=", "+", "-", "@")

# Given some Instances, returns those of them to which a permission applies.
Permitted = Callable[[Sequence[Instance]], Sequence[Instance]]


def count_by_state(rows_of: Callable[[str], InstanceQuerySet[Any]]) -> dict[str, int]:
    """Return the numbers of rows by state, and by "" for all states, in one query.

    ``rows_of(state)`` returns the rows in a state. No number is more than MOST_COUNTED + 1.
    """
    states = ("", *State)
    counts = {
        f"count_{number}": RowCount(rows_of(state).order_by().values("pk")[: MOST_COUNTED + 1])
        for number, state in enumerate(states)
    }
    # One row with all the counts: any Type will do, and without one there is nothing to count.
    types = Type.objects.using(settings.DATABASE).order_by()
    found = [*types.annotate(**counts).values_list(*counts)[:1], [0] * len(states)][0]
    # A query that cannot match any row counts as None.
    return {state: count or 0 for state, count in zip(states, found, strict=True)}


def daemons_named(name: str) -> list[Daemon]:
    """Return the daemons with this uuid, or with this name, HOST:PID. Raises UnknownDaemon."""
    rows = list(Daemon.objects.using(settings.DATABASE).defer("misfits", "signatures", "types"))
    found = [row for row in rows if name in (str(row), str(row.uuid), row.uuid.hex)]
    if not found:
        raise UnknownDaemon(f"There is no daemon {name!r}.{did_you_mean(name, map(str, rows))}")
    return found


class Export:
    """All rows of a list, newest first, as lines of CSV or of JSON.

    ``errors`` and ``inputs`` return those of some Instances whose error lines, or inputs, the user
    may see; without ``inputs`` the export has no such column. At most ``most`` rows are exported.
    If there are more, the last line says so.
    """

    def __init__(
        self,
        rows: InstanceQuerySet[Any],
        *,
        errors: Permitted,
        inputs: Permitted | None,
        most: int = MOST_EXPORTED,
    ) -> None:
        self._rows = rows
        self._errors = errors
        self._inputs = inputs
        self._most = most
        self._is_cut = False
        self.columns = COLUMNS if inputs is None else (*COLUMNS, INPUTS)

    def csv(self) -> Iterator[str]:
        """Yield the lines of CSV: first the names of the columns, then a line for each row.

        Cells that a spreadsheet would take for a formula begin with an apostrophe. Characters that
        cannot be printed are escaped, so that a terminal can show the lines.
        """
        yield _csv_line(self.columns)
        for document in self._documents():
            yield _csv_line([_csv_cell(document[name]) for name in self.columns])
        if self._is_cut:
            yield f"# {self._describe_cut()}\r\n"

    def json_lines(self) -> Iterator[str]:
        """Yield a line with a JSON object for each row."""
        for document in self._documents():
            yield _json_line(document)
        if self._is_cut:
            yield _json_line({"stopped": self._describe_cut()})

    def _describe_cut(self) -> str:
        return f"{self._most:,} rows: stopped at the limit"

    def _documents(self) -> Iterator[dict[str, Any]]:
        key, left = None, self._most
        while True:
            page = paging.page(self._rows, NEWEST_FIRST, size=PORTION, key=key)
            yield from self._describe(page.rows[:left])
            left -= len(page.rows)
            key = page.next
            self._is_cut = left < 0 or (left == 0 and key is not None)
            if left <= 0 or key is None:
                return

    def _describe(self, instances: Sequence[Instance]) -> Iterator[dict[str, Any]]:
        """Yield a document for each Instance, with three queries at most for all of them."""
        errors = documents.headlines(self._errors(instances))
        inputs = {} if self._inputs is None else _read_inputs(self._inputs(instances))
        for instance in instances:
            document = {name: getattr(instance, name) for name in COLUMNS if name != "error"}
            document["type"] = instance.type.identifier
            document["error"] = errors.get(instance.pk, "")
            if self._inputs is not None:
                document[INPUTS] = inputs.get(instance.pk)
            yield document


def _read_inputs(instances: Iterable[Instance]) -> dict[int, Any]:
    """Return the inputs of Instances as JSON values, masked; None for a pickle."""
    by_key = {each.pk: each for each in instances}
    found = {}
    for row in Inputs.objects.using(settings.DATABASE).filter(pk__in=by_key, format=codec.JSON):
        row.instance = by_key[row.pk]
        try:
            found[row.pk] = json.loads(documents.masked_data(row))
        except (ValueError, RecursionError):
            continue
    return found


def _csv_line(cells: Iterable[str]) -> str:
    line = io.StringIO()
    csv.writer(line).writerow(cells)
    return line.getvalue()


def _csv_cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.isoformat()
    cell = json.dumps(value, ensure_ascii=False) if isinstance(value, (dict, list)) else str(value)
    cell = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in cell)
    return f"'{cell}" if cell.startswith(_FORMULA) else cell


def _json_line(document: dict[str, Any]) -> str:
    return json.dumps(document, default=documents.plain_value) + "\n"
