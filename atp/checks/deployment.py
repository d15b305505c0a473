"""The checks of a deployment (``manage.py check --deploy``): who else can read, write or run."""

import os
import shlex
import stat
from pathlib import Path

from django.conf import settings as project
from django.core import checks
from django.core.checks import Tags, register
from django.core.files.storage import FileSystemStorage, storages
from django.db import connections

from ..conf import settings
from ..store import get_store
from ..words import ownership
from .settings import with_valid_settings


@register(Tags.security, deploy=True)
@with_valid_settings
def check_public_files(app_configs, **kwargs):
    """Check that large responses and published files are not where the site serves files from."""
    storage = storages[settings.STORAGE]
    if not isinstance(storage, FileSystemStorage) or not storage.base_location:
        return []
    folder = Path(storage.location, "atp")
    public = [
        name
        for name in ("MEDIA_ROOT", "STATIC_ROOT")
        if (root := getattr(project, name, None)) and _is_below(folder, root)
    ]
    if not public:
        return []
    return [
        checks.Warning(
            f"Large responses and published files are stored below {public[0]}, in {folder}. Where "
            "the site serves that folder, HTML of a task runs with the site's origin, and whoever "
            "knows an address can read them without view_response.",
            hint=_storage_hint(storage, folder),
            id="atp.W030",
        )
    ]


def _is_below(path, root):
    path, root = os.path.realpath(path), os.path.realpath(root)
    return os.path.commonpath([path, root]) == root


def _storage_hint(storage, folder):
    """Return the lines for the settings that give ATP a storage of its own."""
    location = f"{os.path.realpath(storage.location)}-atp"
    entry = (
        "{'BACKEND': 'django.core.files.storage.FileSystemStorage', "
        f"'OPTIONS': {{'location': {location!r}}}}}"
    )
    if project.is_overridden("STORAGES"):
        lines = [f"STORAGES['atp'] = {entry}"]
    else:
        lines = [
            "from django.conf import global_settings",
            f"STORAGES = {{**global_settings.STORAGES, 'atp': {entry}}}",
        ]
    has_atp = isinstance(getattr(project, "ATP", None), dict)
    lines.append("ATP['STORAGE'] = 'atp'" if has_atp else "ATP = {'STORAGE': 'atp'}")
    told = ["Add to the settings:", *(f"    {line}" for line in lines)]
    if folder.exists():
        target = shlex.quote(location)
        told += [
            "and move the files that are stored already, while no daemon runs:",
            f"    mkdir -p {target} && mv {shlex.quote(str(folder))} {target}/",
        ]
    return "\n".join(told)


@register(Tags.security, deploy=True)
@with_valid_settings
def check_pickle(app_configs, **kwargs):
    """Report that Types may ask for pickle."""
    if not settings.ALLOW_PICKLE:
        return []
    return [
        checks.Warning(
            "ATP['ALLOW_PICKLE'] is True: whoever knows SECRET_KEY and can write to the queue's "
            "database can run code in the workers.",
            hint="Leave ALLOW_PICKLE out of ATP unless a Type needs serializer='pickle'.",
            id="atp.W031",
        )
    ]


@register(Tags.security, deploy=True)
@with_valid_settings
def check_webhooks(app_configs, **kwargs):
    """Report the targets of webhooks that get them unencrypted."""
    return [
        checks.Warning(
            f"ATP['WEBHOOKS'][{name!r}] is sent over http: whoever is on the way can read it, and "
            "which tasks end.",
            hint="Give the target an address that begins with https://, without 'allow_http'.",
            id="atp.W032",
        )
        for name, target in settings.WEBHOOKS.items()
        if str(target["url"]).startswith("http://")
    ]


@register(Tags.security, deploy=True)
def check_user(app_configs, **kwargs):
    """Report that this process runs as root, as daemons may."""
    if os.geteuid() != 0:
        return []
    return [
        checks.Warning(
            "This process runs as root. If atpd does so too, a fault of any handler is a fault of "
            "root.",
            hint="Run atpd, and this check, as a user of their own: User= in a unit of systemd, "
            "USER in a container file.",
            id="atp.W033",
        )
    ]


@register(Tags.security, deploy=True)
@with_valid_settings
def check_database_file(app_configs, **kwargs):
    """Check that other users of the host cannot open the queue's SQLite file."""
    connection = connections[settings.DATABASE]
    if connection.vendor != "sqlite" or connection.is_in_memory_db():
        return []
    database = str(get_store().lock_folder).removesuffix("-atpd")
    files = [database, f"{database}-wal", f"{database}-shm", f"{database}-journal"]
    wide = [each for each in files if _mode(each) & (stat.S_IROTH | stat.S_IWOTH)]
    if not wide:
        return []
    return [
        checks.Warning(
            f"Every user of the host can open {wide[0]}: read the inputs and responses of all "
            "tasks, and stop every writer by a lock.",
            hint=f"chmod o= {shlex.join(wide)}",
            id="atp.W034",
        )
    ]


@register(Tags.security, deploy=True)
@with_valid_settings
def check_scratch_owner(app_configs, **kwargs):
    """Check that other users cannot replace the folders in SCRATCH_DIR."""
    folder = settings.SCRATCH_DIR
    mode = _mode(folder)
    if not mode & stat.S_IWOTH or mode & stat.S_ISVTX:
        return []
    return [
        checks.Warning(
            f"ATP['SCRATCH_DIR'], {folder}, can be written by every user, without the sticky bit: "
            f"any of them can replace scratch directories. {ownership.whose(folder).capitalize()}.",
            hint=f"chmod +t {shlex.quote(str(folder))}",
            id="atp.W035",
        )
    ]


def _mode(path):
    try:
        return os.stat(path).st_mode
    except OSError:
        return 0
