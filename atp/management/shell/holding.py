"""``pause`` and ``resume``: putting what runs on hold."""

from ... import queue
from . import arguments
from .base import Subcommand, actor, find


class Holding(Subcommand):
    """Asks the daemon that runs an Instance for something; ``verb`` is the queue's."""

    verb = None
    told = ""

    def add_arguments(self, parser):
        parser.add_argument(
            "uuid", type=arguments.uuid_prefix, help="its uuid, or how only it begins"
        )

    def run(self, options):
        instance = find(options["uuid"])
        type(self).verb(instance, by=actor())
        return {"uuid": instance.uuid, "state": instance.state}

    def text(self, document):
        return f"{document['uuid']}: {self.told}."


class Pause(Holding):
    name = "pause"
    help = "Put an Instance that runs on hold."
    verb = queue.pause
    told = "its daemon is asked to put it on hold where its handler next looks"


class Resume(Holding):
    name = "resume"
    help = "Let an Instance that is on hold go on."
    verb = queue.resume
    told = "it will go on as soon as there is a place for it"
