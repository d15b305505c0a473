"""Who may look, where, and what to try."""

import os
import secrets
import shlex
import sys
from pathlib import Path

from django.contrib.auth import get_user_model

USER = "demo"


def make_login(directory):
    """Make a superuser with a password of this directory's own, and return the password."""
    kept = directory / "password"
    if not kept.exists():
        kept.touch(mode=0o600)
        kept.write_text(secrets.token_urlsafe(9))
    password = kept.read_text()
    user, _ = get_user_model().objects.update_or_create(
        username=USER, defaults={"is_staff": True, "is_superuser": True}
    )
    user.set_password(password)
    user.save()
    return password


def where_to_look(port, password, directory):
    """Return lines that say where."""
    return [
        f"  pages   http://127.0.0.1:{port}/  (login {USER}, password {password})",
        f"          http://127.0.0.1:{port}/atp/graphs/  tiles in parallel, a mosaic, a report",
        f"          http://127.0.0.1:{port}/atp/schedules/  one runs each ten seconds",
        f"  API     http://127.0.0.1:{port}/api/",
        f"  logs    {directory / 'atpd.log'}",
        f"          {directory / 'web.log'}",
    ]


def what_to_try(manage):
    """Return lines that say what to do next, in a shell that has not this environment."""
    chosen = [
        f"{name}={shlex.quote(os.environ[name])}"
        for name in ("DATABASE_URL", "DEMO_DIR")
        if os.environ.get(name, "") not in ("", str(manage.parent / ".demo"))
    ]
    command = " ".join([*chosen, _short(sys.executable), _short(manage)])
    return [
        "The web server and the daemon go on; Ctrl-C ends the demo. In another terminal:",
        f"  {command} atp status",
        f"  {command} atp enqueue terrain.hillshade '{{\"azimuth\": 90}}'",
    ]


def _short(path):
    """Return a path as one would type it from here."""
    # Not resolved: the interpreter of a virtual environment is a link.
    here = Path.cwd()
    return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else str(path)
