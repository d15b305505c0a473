"""A list of Instances beyond its page: counts by state, all its rows to export, and a search."""

import csv
import io
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F, Q, Value
from django.db.models.functions import StrIndex

from ..conf import settings
from ..exceptions import InvalidSelection, UnknownDaemon
from ..models import Daemon, Inputs, Instance, Type
from ..operations.registry import sensitive_names
from ..payload import binding, codec
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


# Search for Instances by their inputs: for an argument's value, or for a text anywhere in them.
#
# No index has the inputs, so a search is bounded: it is within one Type and a span of time, and
# :func:`atp.reports.paging.page` reads at most MOST_SEARCHED inputs for a page. Sensitive arguments
# are masked before they are compared, and pickles are never opened.

# The search reads the inputs of at most this many Instances for a page.
MOST_SEARCHED = 20_000
# Without a beginning, the span of a search is this long.
SPAN = timedelta(days=1)


def search_inputs(rows: InstanceQuerySet[Any], type: Type | None, wanted: str) -> Any:
    """Select the Instances of a Type whose inputs contain what is wanted, as a Search.

    ``wanted`` is "name=value", for an argument of this name, or any other text. Raises
    InvalidSelection, also if the argument is sensitive.
    """
    if type is None:
        raise _invalid("Inputs are searched within one Type only. Give the filter 'type', too.")
    masked = sensitive_names(type)
    name, is_pair, value = wanted.partition("=")
    if is_pair and name.isidentifier():
        if name in masked:
            raise _invalid(f"The argument {name!r} of {type} is sensitive, so it is not searched.")
        texts = [f'"{name}":', _in_json(value)]
        accepts = _accept_argument(name, value, masked)
    else:
        texts = [_in_json(wanted)]
        accepts = _accept_text(texts[0], masked)
    # The database leaves out most inputs; ``accepts`` then reads the others.
    condition = Q(inputs__format=codec.JSON)
    for number, each in enumerate(texts):
        rows = rows.alias(**{f"place{number}": StrIndex("inputs__data", Value(each))})
        condition &= Q(**{f"place{number}__gt": 0})
    rows = rows.annotate(searched=F("inputs__data"))
    return rows.searched(condition, most=MOST_SEARCHED, accepts=accepts)


def span_of_search(
    after: datetime | None, before: datetime | None, now: datetime
) -> tuple[datetime, datetime | None]:
    """Return the span in which inputs are searched: the given one, or a day if it has no begin."""
    return after or (before or now) - SPAN, before


def _invalid(sentence: str) -> InvalidSelection:
    return InvalidSelection(sentence, errors=[("input", sentence)])


def _in_json(text: str) -> str:
    """Return a text as it stands within JSON, without the quotation marks around it."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _accept_text(text: str, masked: Collection[str]) -> Callable[[str], bool]:
    """Return a function that says whether inputs as JSON contain a text outside of the masks."""
    return lambda data: text in binding.mask_json(data, masked)


def _accept_argument(name: str, value: str, masked: Collection[str]) -> Callable[[str], bool]:
    """Return a function that says whether an argument in inputs as JSON has a value."""

    def accepts(data: str) -> bool:
        try:
            inputs = json.loads(binding.mask_json(data, masked))
        except (ValueError, RecursionError):
            return False
        return isinstance(inputs, dict) and name in inputs and _as_text(inputs[name]) == value

    return accepts


def _as_text(value: Any) -> str:
    """Return a JSON value as a user writes it: text without quotation marks, other values as JSON.

    A tagged value, such as ``{"$date": "2030-01-31"}``, is the text in it.
    """
    if isinstance(value, dict) and len(value) == 1:
        [(tag, inner)] = value.items()
        if tag.startswith("$") and isinstance(inner, str):
            return inner
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
