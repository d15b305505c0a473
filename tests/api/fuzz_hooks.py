"""Hooks that give the fuzzer identifiers that exist, and keep its waits short.

A generated uuid or Type almost never exists. The hooks replace most of them with existing ones.
The choice depends on the generated value, so that the same seed makes the same requests.
"""

import json
import os
import re
import zlib
from contextlib import suppress
from uuid import UUID

import schemathesis

LONGEST_WAIT = 0.05
# What there is: lists of "types", "instances" and "daemons".
KNOWN = json.loads(os.environ.get("ATP_FUZZ_KNOWN", "{}"))
_IDENTIFIER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:\-]{0,199}")


@schemathesis.hook
def before_call(context, case, kwargs):
    """Adjust a request before it is sent."""
    if case.query:
        _mend_wait(case.query)
    if case.path_parameters:
        _mend_path(case.path_parameters, case.operation.path)
    if isinstance(case.body, list):
        case.body = [_plausible(item) for item in case.body]
    elif isinstance(case.body, dict):
        case.body = _plausible(case.body)


def _mend_wait(query):
    """Shorten the wait, because there are many requests."""
    with suppress(TypeError, ValueError):
        if LONGEST_WAIT < float(query.get("wait")) <= 60:
            query["wait"] = LONGEST_WAIT


def _mend_path(found, path):
    kind = "daemons" if "/daemons" in path else "instances"
    if _is_uuid(found.get("uuid")):
        found["uuid"] = _known(kind, found["uuid"])
    if _is_identifier(found.get("identifier")):
        found["identifier"] = _known("types", found["identifier"])
    number = str(found.get("number"))
    if number.isdecimal() and int(number) % 2:
        found["number"] = 0


def _plausible(item):
    """Give an item an existing Type, and printable text where the schema cannot require it."""
    if not isinstance(item, dict):
        return item
    item = dict(item)
    if _is_identifier(item.get("type")):
        # Always, or nothing else of the body would matter.
        item["type"] = _known("types", item["type"], always=True)
    for name in ("identifier", "collection", "reason"):
        text = item.get(name)
        if isinstance(text, str) and 1 <= len(text) <= 200:
            item[name] = "".join(c for c in text if c.isprintable()) or "x"
    after = item.get("run_after")
    if isinstance(after, str) and after == item.get("start_before"):
        del item["start_before"]  # there would be no time between them
    return item


def _known(kind, made_up, always=False):
    """Return an existing name, or in half of the cases the generated one."""
    number = zlib.crc32(str(made_up).encode())
    names = KNOWN.get(kind)
    return names[number // 2 % len(names)] if names and (always or number % 2) else made_up


def _is_identifier(value):
    return isinstance(value, str) and _IDENTIFIER.fullmatch(value) is not None


def _is_uuid(value):
    try:
        return str(UUID(str(value))) == str(value).lower()
    except ValueError:
        return False
