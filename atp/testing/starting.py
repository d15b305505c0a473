"""Starts atpd on a test's databases, by ``python -m atp.testing.starting [OPTION …]``.

atpd uses the project's settings, except for the names of the databases.
"""

import json
import os
import sys
from importlib import import_module

# Environment variables with JSON: the names of the databases by alias, the modules to import, and
# true if Django created the tables without migrations.
DATABASES, MODULES = "ATP_TESTING_DATABASES", "ATP_TESTING_MODULES"
UNMIGRATED = "ATP_TESTING_UNMIGRATED"


def main(arguments: list[str]) -> None:
    """Run atpd in this process with these command-line arguments."""
    import django
    from django.conf import settings
    from django.core.management import ManagementUtility
    from django.db import connections

    django.setup()
    for alias, name in json.loads(os.environ[DATABASES]).items():
        connections[alias].settings_dict["NAME"] = name
    if json.loads(os.environ[UNMIGRATED]):
        # Otherwise atpd refuses to start, because none of ATP's migrations has been applied.
        settings.MIGRATION_MODULES = {**settings.MIGRATION_MODULES, "atp": None}
    for module in json.loads(os.environ[MODULES]):
        import_module(module)
    ManagementUtility(["manage.py", "atpd", *arguments]).execute()


if __name__ == "__main__":
    main(sys.argv[1:])
