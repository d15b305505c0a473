"""Annotations of handlers of which no schema can be made."""

from django.core import checks
from django.core.checks import Tags, register

from .. import contracts
from ..verbs.registry import registry


@register(Tags.compatibility, deploy=True)
def check_contracts(app_configs, **kwargs):
    """Check that the annotation of each parameter says what JSON it takes.

    It is a hint: such a parameter takes any JSON. With ``--deploy`` only, since a contract of
    each Type takes a while.
    """
    found = []
    for declared in sorted(registry, key=str):
        contract = contracts.schema_of(declared)
        for name, reason in contract.hints.items() if contract else ():
            text = f"The Type {declared.identifier!r} takes any JSON for {name!r}: {reason}"
            if name == "return":
                text = f"The Type {declared.identifier!r} returns any JSON: {reason}"
            found.append(checks.Info(text, obj=declared.handler_path, id="atp.I015"))
    return found
