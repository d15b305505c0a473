"""Celery in a Django project: on Redis, with its fixup for Django, which closes connections."""

import os

from . import base, project

_settings = {"CELERY_BROKER_URL": f"redis+socket://{base.store()['path']}"}
if base.keeps_connections():
    # It closes them after each task whatever CONN_MAX_AGE says, unless it may use them so often.
    _settings["CELERY_DB_REUSE_MAX"] = 10**9
project.set_up(**_settings)
# Where this is not set there is no fixup; what it names is not looked at, as there are settings.
os.environ["DJANGO_SETTINGS_MODULE"] = __name__

import celery  # noqa: E402

app = celery.Celery("peers")
app.config_from_object("django.conf:settings", namespace="CELERY")


@app.task(name="save")
def save(number):
    project.save(number)


class Peer(project.Driver):
    async def enqueue_save(self, number):
        save.delay(number)

    def work(self):
        base.become("celery", f"--app={__name__}", "worker", *base.option("arguments"))
