"""Assertions about enqueued Instances. The message of a failure shows the nearest ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ..conf import settings
from ..models import Instance
from ..payload.sensitive import masked
from .expected import Expected, given_to, rows_of

# A message shows this many of the nearest Instances.
NEAREST = 3


def find(type: Any, args: Sequence[Any], given: Mapping[str, Any]) -> list[Instance]:
    """Return the Instances that match, oldest first."""
    expected = Expected.of(type, args, given)
    rows = rows_of(expected.type)
    return [row[0] for row in rows if not expected.differences(*row)]


def assert_enqueued(type: Any, args: Sequence[Any], given: Mapping[str, Any]) -> Instance:
    """Return the oldest Instance that matches. Raises AssertionError if none does."""
    expected = Expected.of(type, args, given)
    rows = rows_of(expected.type)
    near = []
    for row in rows:
        differences = expected.differences(*row)
        if not differences:
            return row[0]
        near.append((differences, row[0]))
    raise AssertionError("\n".join(_told(expected, near)))


def refute_enqueued(type: Any, args: Sequence[Any], given: Mapping[str, Any]) -> None:
    """Raise AssertionError if an Instance matches."""
    expected = Expected.of(type, args, given)
    found = [row for row in rows_of(expected.type) if not expected.differences(*row)]
    if found:
        lines = [f"{expected} is enqueued, {len(found)} times:"]
        for instance, inputs, _ in found[:NEAREST]:
            shown = masked(given_to(expected.type, inputs), expected.type.sensitive)
            lines.append(f"  {instance.uuid} {instance.state}: {shown!r}")
        raise AssertionError("\n".join(lines))


def _told(expected: Expected, near: list[tuple[list[str], Instance]]) -> list[str]:
    lines = [f"{expected} is not enqueued."]
    if not near:
        of_type = Instance.objects.using(settings.DATABASE).values_list("type__identifier")
        others = Counter(name for (name,) in of_type)
        told = ", ".join(f"{count} × {name}" for name, count in sorted(others.items()))
        return [*lines, f"Nothing of this Type is. There is: {told or 'nothing at all'}."]
    near.sort(key=lambda each: len(each[0]))
    lines.append(f"The nearest of {len(near)}:")
    for differences, instance in near[:NEAREST]:
        lines.append(f"  {instance.uuid} {instance.state}")
        lines += [f"    {line}" for line in differences]
    return lines
