"""The outcomes of verbs on dead letters: a plan, or the Instance that carries it out."""

from rest_framework import serializers as rest

from ...models import Instance
from ...reports.errors import plans
from ...verbs.matching.plan import Plan
from .. import fields
from ..serializers import Document


class PlanSerializer(Document):
    count = fields.count("What it would be done to.")
    by_error = rest.DictField(child=fields.count(), help_text="By the names of error groups.")
    by_type = rest.DictField(child=fields.count(), help_text="By Type.")
    by_collection = rest.DictField(child=fields.count(), help_text="By collection.")
    cannot = rest.DictField(
        child=fields.count(), help_text="What would be left as it is, by the reason for it."
    )
    takes = rest.FloatField(allow_null=True, help_text="The seconds at that rate, if one is given.")
    told = fields.text("The same in words.")


class DoneSerializer(Document):
    told = fields.text("The outcome in words.")
    plan = PlanSerializer(allow_null=True, help_text="With dry_run; otherwise null.")
    instance = rest.UUIDField(
        allow_null=True, help_text="The Instance that does it; null where nothing is to be done."
    )
    url = rest.URLField(allow_null=True, help_text="The address of that Instance.")


def document(view, outcome):
    """Return the document of a verb's outcome."""
    value = outcome.value
    made = value if isinstance(value, Instance) else None
    return {
        "told": outcome.told,
        "plan": plans.document(value) if isinstance(value, Plan) else None,
        "instance": None if made is None else made.uuid,
        "url": None if made is None else view.url("instances-detail", made.uuid),
    }
