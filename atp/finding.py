"""Finding Instances: by what verbs are given; :mod:`atp.queue` is where it is called."""

from uuid import UUID

from .conf import settings
from .exceptions import InvalidOption, UnknownInstance
from .models import Instance
from .options import MAX_IDENTIFIER


def get(uuid=None, *, type=None, identifier=None):
    """Return the Instance of this uuid, or of this Type and identifier.

    Raises UnknownInstance.
    """
    rows = Instance.objects.using(settings.DATABASE).select_related("type")
    try:
        if uuid is not None:
            return rows.get(uuid=uuid if isinstance(uuid, UUID) else UUID(str(uuid)))
        if identifier is not None:
            return rows.get(type__identifier=str(type), identifier=identifier)
    except (Instance.DoesNotExist, ValueError):
        pass
    if uuid is None and identifier is None:
        raise UnknownInstance("An Instance is found by its uuid, or by type and identifier.")
    named = uuid if uuid is not None else f"of {type} with identifier {identifier!r}"
    raise UnknownInstance(f"There is no Instance {named}.")


def meant(instances, by=""):
    """Return the Instances that a verb is given, each itself or by its uuid, as a list.

    ``by`` is who asks, for the log. Raises UnknownInstance, or InvalidOption where ``by`` is
    no text that the log takes: before anything is written.
    """
    check_by(by)
    return [_meant(given) for given in instances]


def check_by(by):
    """Check that the log takes this as who asked. Raises InvalidOption."""
    if not isinstance(by, str):
        raise InvalidOption(f"by={by!r}: must be text, who acts and through which channel.")
    if len(by) > MAX_IDENTIFIER or "\x00" in by:
        raise InvalidOption(f"by: must be text of at most {MAX_IDENTIFIER} characters.")


def _meant(given):
    if isinstance(given, Instance):
        return given
    if isinstance(given, (str, UUID)):
        return get(given)
    raise UnknownInstance(f"There is no Instance {given!r}: give an Instance or its uuid.")
