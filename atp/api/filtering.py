"""The filters of a list as parameters: what pages and API select by is the same."""

from ..registry import IDENTIFIER
from ..web.filters import TypeFilter, UUIDFilter, WordFilter
from .operation import Parameter


def parameters(filterset):
    """Return a Parameter for each filter of a filter set."""
    return tuple(
        Parameter(name=name, description=_description(filter), schema=_schema(filter))
        for name, filter in filterset.base_filters.items()
    )


def _description(filter):
    return " ".join([filter.label, filter.extra.get("help_text", "")]).strip() + "."


def _schema(filter):
    if isinstance(filter, WordFilter):
        return {"type": "string", "enum": [word for word, _ in filter.extra["choices"] if word]}
    if isinstance(filter, TypeFilter):
        return {"type": "string", "pattern": f"^{IDENTIFIER}$"}
    if isinstance(filter, UUIDFilter):
        return {"type": "string", "pattern": "^-*([0-9A-Fa-f]-*){8,32}$"}
    return {"type": "string", "minLength": 1, "maxLength": filter.extra["max_length"]}
