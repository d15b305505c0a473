"""Creates the demo's user, and tells where to look and what to try next."""

import os
import secrets
import shlex
import sys
from pathlib import Path

from django.contrib.auth import get_user_model

USER = "demo"


def make_login(directory):
    """Create a superuser, and return the password, which is kept in the demo's directory."""
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
    """Return lines of text with the URLs of the demo and the paths of its logs."""
    return [
        f"  pages   http://127.0.0.1:{port}/  (login {USER}, password {password})",
        f"          http://127.0.0.1:{port}/atp/graphs/  tiles in parallel, a mosaic, a report",
        f"          http://127.0.0.1:{port}/atp/schedules/  one runs every ten seconds",
        f"  API     http://127.0.0.1:{port}/api/",
        f"  logs    {directory / 'atpd.log'}",
        f"          {directory / 'web.log'}",
    ]


def what_to_try(manage):
    """Return lines of text with commands to try in another terminal."""
    chosen = [
        f"{name}={shlex.quote(os.environ[name])}"
        for name in ("DATABASE_URL", "DEMO_DIR")
        if os.environ.get(name, "") not in ("", str(manage.parent / ".demo"))
    ]
    command = " ".join([*chosen, _short(sys.executable), _short(manage)])
    return [
        "The web server and the daemon keep running until Ctrl-C. In another terminal, try:",
        f"  {command} atp status",
        f"  {command} atp enqueue terrain.hillshade '{{\"azimuth\": 90}}'",
    ]


def _short(path):
    """Return a path as the user would type it in the current directory."""
    # Links are not resolved, because a virtual environment's interpreter is a link.
    here = Path.cwd()
    return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else str(path)
