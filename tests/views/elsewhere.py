"""A storage of static files as projects have it that keep them on another server."""

from django.contrib.staticfiles.storage import StaticFilesStorage


class StorageElsewhere(StaticFilesStorage):
    def url(self, name):
        return f"https://files.example/{name}"
