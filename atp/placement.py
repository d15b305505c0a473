"""Where a Type may run: what it needs of a host, and what a daemon's host has.

A Type names labels that it ``needs``, as ``{"disk": "fast"}``, and the ``resources`` that each of
its attempts takes, as ``{"gpu": 1}``. A daemon is started with the labels and the capacity of its
host. Amounts are whole numbers; those of memory are bytes.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, TypeAlias, TypeVar

from .text import read_memory, size

# Labels by name, and amounts of resources by name.
Labels: TypeAlias = Mapping[str, str]
Amounts: TypeAlias = Mapping[str, int]
Value = TypeVar("Value", str, int)

# The resource whose amounts are sizes, and the one whose units have numbers (``context.devices``).
MEMORY, DEVICES = "memory", "gpu"
# The label that a daemon has whose attempts an engine runs.
EXECUTOR = "executor"
# The variable by which programs find the GPUs that they may use.
VISIBLE = "CUDA_VISIBLE_DEVICES"

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.\-]{0,62}", re.ASCII)
_VALUE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/+\-]{0,62}", re.ASCII)
_MOST = 1_000_000


def read_needs(value: Any) -> dict[str, str]:
    """Check the labels that a Type needs, and return them as a dict. Raises ValueError."""
    return _read(value, _label_value, {"disk": "fast"})


def read_resources(value: Any) -> dict[str, int]:
    """Check the resources that a Type takes; return amounts by name. Raises ValueError."""
    return _read(value, _amount, {"gpu": 1, "memory": "8GiB"})


def read_label(text: str) -> tuple[str, str]:
    """Return the name and the value of a label, as in "disk=fast". Raises ValueError."""
    name, sign, value = text.partition("=")
    if not sign:
        raise ValueError(f"{text!r} is no label: a label has a name and a value, as in 'disk=fast'")
    [found] = read_needs({name: value}).items()
    return found


def read_capacity(text: str) -> dict[str, int]:
    """Return the amounts in a list such as "gpu=2,memory=64GiB". Raises ValueError."""
    amounts: dict[str, int] = {}
    for part in text.split(","):
        name, sign, value = part.strip().partition("=")
        if not sign:
            raise ValueError(f"{part!r} is no amount: give a name and a number, as in 'gpu=2'")
        if name in amounts:
            raise ValueError(f"{name!r} is given twice")
        amounts |= read_resources({name: int(value) if value.isdecimal() else value})
    return amounts


def _read(value: Any, read: Callable[[str, Any], Value], example: object) -> dict[str, Value]:
    if not isinstance(value, Mapping):
        raise ValueError(f"must be a dict, as in {example!r}, not {value!r}")
    for name in value:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ValueError(
                f"{name!r} is no name: a name begins with a letter, and has up to 63 "
                "letters, digits, '_', '.' and '-'"
            )
    return {name: read(name, each) for name, each in sorted(value.items())}


def _label_value(name: str, value: Any) -> str:
    if not isinstance(value, str) or not _VALUE.fullmatch(value):
        raise ValueError(
            f"{name}={value!r}: a label's value has 1 to 63 letters, digits and '_.:/+-', and "
            "begins with a letter, a digit or '_'"
        )
    return value


def _amount(name: str, value: Any) -> int:
    if name == MEMORY:
        return read_memory(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MOST:
        raise ValueError(f"{name}={value!r}: an amount is a whole number from 1 to {_MOST:,}")
    return value


def words(name: str, value: str | float) -> str:
    """Return a label or an amount as text: "disk=fast", "gpu=2" or "memory=8.0 GiB"."""
    if isinstance(value, float):
        value = round(value) if value.is_integer() else value
    return f"{name}={size(value) if name == MEMORY and not isinstance(value, str) else value}"


def described(found: Mapping[str, str | float]) -> str:
    """Return labels or amounts as text: "gpu=2, memory=64.0 GiB"."""
    return ", ".join(words(name, value) for name, value in found.items())


def lacking(needs: Labels, resources: Amounts, labels: Labels, capacity: Amounts) -> list[str]:
    """Return what a host lacks for a Type, as :func:`words`; nothing if the Type may run there.

    An amount is lacking if the whole capacity of the host is smaller, however much of it is free.
    """
    return [
        *(words(name, value) for name, value in needs.items() if labels.get(name) != value),
        *(words(name, most) for name, most in resources.items() if capacity.get(name, 0) < most),
    ]


def room(resources: Amounts, free: Amounts) -> int:
    """Return how many attempts that take these resources find room in the ``free`` amounts."""
    return min((free.get(name, 0) // amount for name, amount in resources.items()), default=_MOST)


def why_nowhere(needs: Labels, resources: Amounts, hosts: Iterable[tuple[Labels, Amounts]]) -> str:
    """Say what no host has: "no daemon has disk=fast"; "" if some host lacks nothing.

    ``hosts`` are the labels and the capacity of each daemon. If one of these is similar to what is
    missing, the sentence names it: a name may be mistyped.
    """
    hosts = list(hosts)
    lacks = [lacking(needs, resources, *host) for host in hosts]
    if not hosts or not all(lacks):
        return ""
    wanted = lacking(needs, resources, {}, {})
    nowhere = [each for each in wanted if all(each in own for own in lacks)]
    if not nowhere:
        return f"no daemon has {' and '.join(wanted)} together"
    known = {words(*pair) for host in hosts for offered in host for pair in offered.items()}
    near = get_close_matches(nowhere[0], known, n=1)
    return f"no daemon has {' or '.join(nowhere)}{f'; the nearest is {near[0]}' if near else ''}"


def device_names(capacity: Amounts, environment: Mapping[str, str]) -> list[str]:
    """Return the names of the GPUs in a host's capacity: those in VISIBLE, or else 0, 1 and so on.

    Raises ValueError if VISIBLE names fewer: the daemon must not use what was hidden from it.
    """
    count = capacity.get(DEVICES, 0)
    if VISIBLE not in environment:
        return [str(number) for number in range(count)]
    given = [name.strip() for name in environment[VISIBLE].split(",") if name.strip()]
    if len(given) < count:
        raise ValueError(
            f"the capacity has {DEVICES}={count}, but {VISIBLE} names {len(given)}: "
            f"{', '.join(given) or 'none'}"
        )
    return given[:count]
