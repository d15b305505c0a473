"""Make a Wagtail site, use it, let atpd run its tasks, and look what came of it::

    python -m tests.wagtail              (on Django 5.2 and on Django 6)
    python -m tests.wagtail --django 6

The site is that of ``wagtail start``, in a temporary folder, with a few lines more in its
settings: ``atp`` in INSTALLED_APPS, what docs/settings.md says of SQLite, and TASKS. A page is
published, a document is added, and deleted later. Before a daemon has run
nothing of that has been worked on; afterwards the search index, the index of references and the
folder of files say that it has (:mod:`tests.wagtail.site`).
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.conformance.fetching import ROOT, SQLITE, make_environment, run

DJANGO = {"5.2": "Django>=5.2,<5.3", "6": "Django>=6.0,<7"}
# What a project adds to its settings.
SETTINGS = """
INSTALLED_APPS += ["atp"]
TASKS = {"default": {"BACKEND": "atp.backend.ATPBackend", "OPTIONS": {"max_retries": 3}}}
"""


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.wagtail", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--django", choices=DJANGO, action="append")
    for version in parser.parse_args().django or DJANGO:
        _try(version)


def _try(version):
    packages = [DJANGO[version], "wagtail>=7.2", "-e", str(ROOT)]
    python = make_environment(ROOT / ".conformance" / f"wagtail-{version}" / "venv", packages)
    with tempfile.TemporaryDirectory(prefix="atp-wagtail-") as folder:
        site = Path(folder) / "site"
        site.mkdir()
        environment = os.environ | {
            "DJANGO_SETTINGS_MODULE": "mysite.settings.dev",
            "PYTHONPATH": f"{site}:{ROOT}",
        }

        def call(*command, **options):
            run(python, *command, cwd=site, env=environment, **options)

        run(python.with_name("wagtail"), "start", "mysite", site, cwd=folder)
        with (site / "mysite" / "settings" / "base.py").open("a") as settings:
            settings.write(SETTINGS + SQLITE)
        call("manage.py", "migrate", "--verbosity", "0")
        for step, afterwards in (("use", "used"), ("delete", "deleted")):
            call("-m", "tests.wagtail.site", step)
            with subprocess.Popen([python, "manage.py", "atpd"], cwd=site, env=environment) as atpd:
                try:
                    call("-m", "tests.wagtail.site", "wait")
                finally:
                    atpd.terminate()
            call("-m", "tests.wagtail.site", afterwards)
    print(f"Wagtail on Django {version}: every task was run.\n", flush=True)


if __name__ == "__main__":
    sys.exit(main())
