"""The Django app, whose tasks the daemons import."""

from django.apps import AppConfig


class EOxServerConfig(AppConfig):
    name = "atp.contrib.eoxserver"
    label = "atp_eoxserver"
