"""The dispatcher's channel to its supervisor."""

from ..shared.channel import Closed


class SupervisorLink:
    """The channel to the supervisor. ``is_lost`` says that the supervisor is dead."""

    def __init__(self, channel):
        self.channel = channel
        self.is_lost = False

    def tell(self, message):
        """Send a message to the supervisor."""
        try:
            self.channel.send(message)
        except Closed:
            self.is_lost = True

    def receive(self):
        """Yield each message that has come, with the descriptors that it passes."""
        while True:
            try:
                yield self.channel.receive(wait=False)
            except BlockingIOError:
                return
            except Closed:
                self.is_lost = True
                return
