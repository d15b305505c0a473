"""Runs the demo with one command, ``python -m demo_project``.

This module chooses the database and the directory before Django loads. Then
:mod:`demo_project.show` runs tasks and shows their progress.
"""

import argparse
import os
import signal
import sys
from contextlib import ExitStack
from pathlib import Path

from .show import DemoError
from .show.cluster import dask
from .show.directory import owned
from .show.embedded import postgresql

BASE_DIR = Path(__file__).resolve().parent.parent


def main(arguments=None):
    """Run the demo and return its exit status."""
    options = parsed(arguments)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        return run(options)
    except DemoError as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        print(f"{error}. Install the demo with: pip install -e '.[demo]'", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        # Without --exit an interrupt is the normal end of the demo.
        return 130 if options.exit else 0


def parsed(arguments):
    parser = argparse.ArgumentParser(
        prog="python -m demo_project",
        description="Runs tasks on a real elevation model, with a web server and a daemon.",
        epilog="Set DATABASE_URL to use another database than SQLite, and DEMO_DIR to write to "
        "another directory than .demo.",
    )
    parser.add_argument("--exit", action="store_true", help="exit when all tasks have ended")
    parser.add_argument("--postgres", action="store_true", help="run on an embedded PostgreSQL")
    parser.add_argument("--dask", action="store_true", help="analyse terrain on a cluster of Dask")
    parser.add_argument("--port", type=int, help="port of the web server (8000, or a free one)")
    parser.add_argument("--processes", type=int, default=2, help="number of workers (default: 2)")
    parser.add_argument(
        "--deadline", type=float, default=180, help="with --exit, give up after so long (180 s)"
    )
    return parser.parse_args(arguments)


def run(options):
    """Choose the directory and the database, load Django, and run the demo."""
    directory = Path(os.environ.get("DEMO_DIR") or BASE_DIR / ".demo").absolute()
    with ExitStack() as stack:
        stack.enter_context(owned(directory))
        if options.postgres:
            if os.environ.get("DATABASE_URL"):
                raise DemoError("--postgres and DATABASE_URL both name a database. Use only one.")
            os.environ["DATABASE_URL"] = stack.enter_context(postgresql(directory))
        os.environ["DEMO_DIR"] = str(directory)
        os.environ["DJANGO_SETTINGS_MODULE"] = "demo_project.settings"
        if options.dask:
            os.environ["DASK"] = stack.enter_context(dask(directory, threads=options.processes))

        import django

        django.setup()

        from .show.play import play

        return play(options, directory, manage=BASE_DIR / "manage.py")


if __name__ == "__main__":
    sys.exit(main())
