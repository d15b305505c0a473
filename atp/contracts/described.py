"""The parameters of a handler in words: name, type, default, and text from the docstring."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .contract import Contract

_SECTIONS = {"args", "arguments", "parameters", "params", "keyword args", "keyword arguments"}
_SPHINX = re.compile(r":param(?:eter)?\s+(?:[^:]*\s)?\*{0,2}(\w+):\s*(.*)")
_GOOGLE = re.compile(r"\*{0,2}(\w+)(?:\s*\([^)]*\))?:\s+(.*)")
_NUMPY = re.compile(r"\*{0,2}(\w+)(?:\s*:.*)?$")


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """A parameter in words for people; ``default`` is JSON, None if it is required."""

    name: str
    type: str
    default: str | None
    is_required: bool
    description: str


def described(contract: Contract | None, signature: inspect.Signature) -> list[Parameter]:
    """Return the parameters of a Type as rows of a table; an empty list without a contract."""
    if contract is None:
        return []
    stars: dict[Any, str] = {
        inspect.Parameter.VAR_POSITIONAL: "*",
        inspect.Parameter.VAR_KEYWORD: "**",
    }
    found = []
    for name, parameter in signature.parameters.items():
        schema, star = contract.parameters[name], stars.get(parameter.kind, "")
        default = None
        if "default" in schema:
            default = json.dumps(schema["default"], ensure_ascii=False)
        elif parameter.default is not parameter.empty:
            default = repr(parameter.default)
        found.append(
            Parameter(
                name=f"{star}{name}",
                type=words_of(schema, contract.defs),
                default=default,
                is_required=not star and parameter.default is parameter.empty,
                description=schema.get("description", ""),
            )
        )
    return found


def words_of(schema: Any, defs: dict[str, Any]) -> str:
    """Return a schema in a few words: "integer or null", "array of text"."""
    if not isinstance(schema, dict):
        return "any JSON"
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        inner = defs.get(name, {})
        return words_of(inner, defs) if "enum" in inner else inner.get("title", name)
    if is_tagged(schema):
        return schema["title"]
    if "const" in schema:
        return _json(schema["const"])
    if "enum" in schema:
        return _or(map(_json, schema["enum"]))
    for key in ("anyOf", "oneOf"):
        if key in schema:
            # Each number may be NaN: that goes without saying.
            said = [each for each in schema[key] if "$float" not in each.get("properties", ())]
            return _or(words_of(each, defs) for each in said)
    kind = schema.get("type")
    if kind == "object" and "title" in schema:
        return schema["title"]
    if kind == "array" and isinstance(schema.get("items"), dict) and schema["items"]:
        return f"array of {words_of(schema['items'], defs)}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {words_of(schema['additionalProperties'], defs)}"
    return {"string": "text", None: "any JSON"}.get(kind, str(kind)) + _bounds(schema)


def is_tagged(schema: Any) -> bool:
    """Whether a schema is that of a tagged value."""
    names = schema.get("properties", {}) if isinstance(schema, dict) else {}
    return len(names) == 1 and next(iter(names)).startswith("$") and "title" in schema


_WORDS = {
    "minimum": "≥ {}",
    "exclusiveMinimum": "> {}",
    "maximum": "≤ {}",
    "exclusiveMaximum": "< {}",
    "multipleOf": "multiple of {}",
    "minLength": "at least {} long",
    "maxLength": "at most {} long",
    "pattern": "as {}",
}


def _bounds(schema: dict[str, Any]) -> str:
    told = [words.format(schema[key]) for key, words in _WORDS.items() if key in schema]
    return f" {', '.join(told)}" if told else ""


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _or(words: Iterable[str]) -> str:
    *first, last = dict.fromkeys(words)
    return f"{', '.join(first)} or {last}" if first else last


def texts_of(handler: Callable[..., Any]) -> dict[str, str]:
    """Return the text of each parameter in the docstring, in Sphinx, Google or NumPy style."""
    lines = (inspect.getdoc(handler) or "").splitlines()
    found: dict[str, list[str]] = {}
    form, base, name, indent = "", 0, "", 0
    for number, line in enumerate(lines):
        text = line.strip()
        depth = len(line) - len(line.lstrip())
        if sphinx := _SPHINX.match(text):
            name, indent = sphinx[1], depth
            found[name] = [sphinx[2]]
            continue
        after = lines[number + 1].strip() if number + 1 < len(lines) else ""
        if after and set(after) == {"-"}:
            form, base, name = ("numpy" if text.lower() in _SECTIONS else ""), depth, ""
            continue
        if text.lower().removesuffix(":") in _SECTIONS and text.endswith(":"):
            form, base, name = "google", depth, ""
            continue
        if not text:
            name = "" if form != "numpy" else name
            continue
        if form == "google" and depth <= base:
            form, name = "", ""
        if name and depth > indent:
            found[name].append(text)
            continue
        pattern = {"google": _GOOGLE, "numpy": _NUMPY}.get(form)
        started = pattern.match(text) if pattern else None
        name = started[1] if started else ""
        if started:
            indent = depth
            found[name] = [started[2]] if form == "google" else []
    return {name: " ".join(filter(None, texts)) for name, texts in found.items() if any(texts)}
