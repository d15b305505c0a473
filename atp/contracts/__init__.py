"""Contracts: the JSON Schemas of a handler's inputs and outputs, and the check of inputs."""

from ..text import describe_schema as words_of
from .contract import (
    NEEDED,
    Contract,
    Parameter,
    Problem,
    check,
    described,
    document_of,
    is_available,
    require,
    schema_of,
)

__all__ = [
    "NEEDED",
    "Contract",
    "Parameter",
    "Problem",
    "check",
    "described",
    "document_of",
    "is_available",
    "require",
    "schema_of",
    "words_of",
]
