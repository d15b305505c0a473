"""The Django app, whose tasks the daemons import."""

from django.apps import AppConfig


class PygeoapiConfig(AppConfig):
    name = "atp.contrib.pygeoapi"
    label = "atp_pygeoapi"
