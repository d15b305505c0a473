"""The outcomes of verbs on dead letters: a plan, or the Instance that carries it out."""

from rest_framework import serializers as rest

from ...models import Instance
from ...reports.errors import plans
from ...verbs.matching.plan import Plan
from .. import fields
from ..serializers import Document


class PlanSerializer(Document):
    count = fields.count("Instances that the verb would be applied to.")
    by_error = rest.DictField(child=fields.count(), help_text="Their number by error group.")
    by_type = rest.DictField(child=fields.count(), help_text="Their number by Type.")
    by_collection = rest.DictField(child=fields.count(), help_text="Their number by collection.")
    cannot = rest.DictField(
        child=fields.count(), help_text="Number of Instances that are left out, by reason."
    )
    judged = rest.IntegerField(
        allow_null=True,
        min_value=0,
        help_text="The number of Instances that were judged, if there are very many; `count` then "
        "includes all others. Null if all were judged.",
    )
    takes = rest.FloatField(
        allow_null=True, help_text="The duration in seconds at the given rate; null without a rate."
    )
    told = fields.text("The plan in words.")


class DoneSerializer(Document):
    told = fields.text("The outcome in words.")
    plan = PlanSerializer(allow_null=True, help_text="The plan, with `dry_run`; otherwise null.")
    instance = rest.UUIDField(
        allow_null=True, help_text="The Instance that carries the verb out; null if none does."
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
