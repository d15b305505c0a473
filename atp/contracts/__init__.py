"""Contracts: JSON Schema of the inputs and outputs of handlers, and the check of inputs."""

from .checking import Problem, check, require
from .contract import NEEDED, Contract, document_of, is_available, schema_of
from .described import Parameter, described, words_of

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
