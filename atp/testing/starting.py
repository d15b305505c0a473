"""Starting atpd on the databases of a test: ``python -m atp.testing.starting [OPTION …]``.

The settings are those of the project, with the databases of the test.
"""

import json
import os
import sys
from importlib import import_module

# Environment variables, as JSON: the names of the databases by alias; the modules to import.
DATABASES, MODULES = "ATP_TESTING_DATABASES", "ATP_TESTING_MODULES"


def main(arguments: list[str]) -> None:
    """Run atpd in this process; never return."""
    import django
    from django.core.management import ManagementUtility
    from django.db import connections

    django.setup()
    for alias, name in json.loads(os.environ[DATABASES]).items():
        connections[alias].settings_dict["NAME"] = name
    for module in json.loads(os.environ[MODULES]):
        import_module(module)
    ManagementUtility(["manage.py", "atpd", *arguments]).execute()


if __name__ == "__main__":
    main(sys.argv[1:])
