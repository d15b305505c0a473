"""Search for Instances by their inputs: for an argument's value, or for a text anywhere in them.

No index has the inputs, so a search is bounded: it is within one Type and a span of time, and
:func:`atp.reports.paging.page` reads at most MOST_SEARCHED inputs for a page. Sensitive arguments
are masked before they are compared, and pickles are never opened.
"""

import json
from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F, Q, Value
from django.db.models.functions import StrIndex

from ..exceptions import InvalidSelection
from ..models import Type
from ..operations.registry import sensitive_names
from ..payload import binding, codec
from ..querysets import InstanceQuerySet

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
