"""The Django app of the tests; if a run asks for it, log messages become nonsense."""

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
