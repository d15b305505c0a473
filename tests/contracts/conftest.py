"""Fixtures that declare handlers by their annotations."""

import pytest
from jsonschema import Draft202012Validator

from atp import contracts, task_type
from atp.operations.registry import registry


@pytest.fixture
def check():
    """A function that declares a handler with these annotations and checks inputs."""
    name = "tests.contract_annotated"

    def checked(annotations, inputs):
        made = declared(annotations)
        Draft202012Validator.check_schema(contracts.schema_of(made).inputs)
        return [path for path, _ in contracts.check(made, inputs)]

    def declared(annotations):
        registry.remove(name)
        source = f"def handler(context, *, {', '.join(annotations)}):\n    pass\n"
        found = {}
        exec(source, found)
        found["handler"].__annotations__ = dict(annotations)
        return task_type(name)(found["handler"])

    checked.declared = declared
    yield checked
    registry.remove(name)
