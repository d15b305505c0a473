"""The app of the tests; where a run wants it, the messages of the log become nonsense."""

from django.apps import AppConfig

from .. import environment, log_sinks, nonsense


class TestsConfig(AppConfig):
    name = "tests.app"

    def ready(self):
        from atp.schedules.declaring import declared_schedules

        log_sinks.connect()
        # It would enqueue something in the middle of a test.
        declared_schedules.remove("each-ten-seconds")
        if environment.is_nonsense():
            nonsense.install()
