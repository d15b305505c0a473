"""The checks of the folders for published files and for scratch directories."""

from django.core import checks
from django.core.checks import Tags, register
from django.core.files.storage import FileSystemStorage, storages

from ..conf import settings
from ..words import ownership
from .settings import with_valid_settings


@register(Tags.compatibility)
@with_valid_settings
def check_storage(app_configs, **kwargs):
    """Check that published files and large responses have a folder that can be written."""
    storage = storages[settings.STORAGE]
    if not isinstance(storage, FileSystemStorage):
        return []
    if storage.base_location:
        return _check_writable(
            f"ATP['STORAGE'] is {settings.STORAGE!r}",
            storage.location,
            "A handler that publishes a file there, or returns a large response, fails after its "
            "work is done.",
            "atp.W011",
        )
    return [
        checks.Warning(
            f"ATP['STORAGE'] is {settings.STORAGE!r}, which stores files in a directory "
            "that no setting names: MEDIA_ROOT is empty.",
            hint="Each process stores published files and large responses in the directory where "
            "it was started. Set MEDIA_ROOT, or give ATP a storage of its own in STORAGES.",
            id="atp.W005",
        )
    ]


@register(Tags.compatibility)
@with_valid_settings
def check_scratch(app_configs, **kwargs):
    """Check that SCRATCH_DIR can be written by the user of this check; a daemon's may differ."""
    return _check_writable(
        "ATP['SCRATCH_DIR']",
        settings.SCRATCH_DIR,
        "No atpd of this user will start.",
        "atp.W010",
    )


def _check_writable(name, folder, hint, id):
    refusal = ownership.refusal(folder)
    return [checks.Warning(f"{name}: {refusal}.", hint=hint, id=id)] if refusal else []
