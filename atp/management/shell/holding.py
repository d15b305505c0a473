"""``pause`` and ``resume``: putting what runs on hold."""

from ... import queue
from ...registry import registry
from ...states import State
from . import arguments
from .base import Subcommand, actor, find


class Holding(Subcommand):
    """Asks the daemon that runs an Instance for something; ``verb`` is the queue's."""

    verb = None

    def told(self, instance):
        """What comes of it, in words."""
        raise NotImplementedError

    def add_arguments(self, parser):
        parser.add_argument(
            "uuid", type=arguments.uuid_prefix, help="its uuid, or how only it begins"
        )

    def run(self, options):
        instance = find(options["uuid"])
        type(self).verb(instance, by=actor())
        return {"uuid": instance.uuid, "state": instance.state, "told": self.told(instance)}

    def text(self, document):
        return f"{document['uuid']}: {document['told']}."


class Pause(Holding):
    name = "pause"
    help = "Put an Instance that runs on hold."
    verb = queue.pause

    def told(self, instance):
        is_stoppable = registry.is_stoppable(instance.type.identifier)
        where = (
            "at once, wherever its handler is" if is_stoppable else "where its handler next looks"
        )
        return f"its daemon is asked to put it on hold {where}"


class Resume(Holding):
    name = "resume"
    help = "Let an Instance that is on hold go on."
    verb = queue.resume

    def told(self, instance):
        if instance.state == State.RUNNING:
            return "it runs on: the wish to pause it is taken back"
        return "it will go on as soon as there is a place for it"
