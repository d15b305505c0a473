"""The dispatcher's channel to its supervisor."""

from ..shared.channel import Closed


class SupervisorLink:
    """Both directions of the channel. ``is_lost`` says that the supervisor is dead."""

    def __init__(self, channel):
        self.channel = channel
        self.is_lost = False

    def tell(self, message):
        """Send a message."""
        try:
            self.channel.send(message)
        except Closed:
            self.is_lost = True

    def receive(self):
        """Yield each message that has come, with the descriptors that were passed along."""
        while True:
            try:
                yield self.channel.receive(wait=False)
            except BlockingIOError:
                return
            except Closed:
                self.is_lost = True
                return
