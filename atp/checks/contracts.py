"""The check for annotations of handlers from which no schema can be made."""

from django.core import checks
from django.core.checks import Tags, register

from .. import contracts
from ..verbs.registry import registry


@register(Tags.compatibility, deploy=True)
def check_contracts(app_configs, **kwargs):
    """Report the annotations of handlers from which no JSON Schema can be made.

    The report is a hint: such a parameter takes any JSON. The check runs with ``--deploy``
    only, since making a contract for each Type takes a while.
    """
    found = []
    for task_type in sorted(registry, key=str):
        contract = contracts.schema_of(task_type)
        for name, reason in contract.hints.items() if contract else ():
            text = f"The Type {task_type.identifier!r} takes any JSON for {name!r}: {reason}"
            if name == "return":
                text = f"The Type {task_type.identifier!r} returns any JSON: {reason}"
            found.append(checks.Info(text, obj=task_type.handler_path, id="atp.I015"))
    return found
