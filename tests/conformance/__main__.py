"""Run Django's own tests of ``django.tasks`` on ATPBackend::

    python -m tests.conformance --django 6.1
    python -m tests.conformance --django 6.0
    python -m tests.conformance --backport    (Django 5.2 with the package django-tasks)

The tests are those of Django's source distribution, which pip fetches. They are unchanged but for
the base class of the cases, the backends that the settings name, and the classes that backends
derive from (:mod:`tests.conformance.running`). The backport has no tests in its source
distribution: Django's are run on it. A test that does not pass has a reason in
:mod:`tests.conformance.expected`. The command fails if that table and the outcome differ.

Each run has a ``.conformance/`` folder with a virtual environment of its own.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from .expected import reasons
from .fetching import ROOT, prepare

BACKPORT = "backport"


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--django", choices=["6.0", "6.1"])
    which.add_argument("--backport", action="store_true")
    given = parser.parse_args()
    version = BACKPORT if given.backport else given.django
    python, tests = prepare(version)
    outcome = _run(python, tests, version)
    sys.exit(_tell(version, outcome))


def _run(python, tests, version):
    """Run the tests in their environment; return each test's outcome, None if it passed."""
    with tempfile.TemporaryDirectory(prefix="atp-conformance-") as folder:
        outcome = Path(folder) / "outcome.json"
        environment = {
            **os.environ,
            "CONFORMANCE_DIR": folder,
            "CONFORMANCE_TESTS": str(tests),
            "DJANGO_SETTINGS_MODULE": "tests.conformance.settings",
            "DJANGO_ALLOW_ASYNC_UNSAFE": "true",
            "PYTHONPATH": f"{ROOT}:{tests}",
        }
        if version == BACKPORT:
            environment["CONFORMANCE_BACKPORT"] = "1"
        command = [python, "-m", "tests.conformance.running", str(outcome)]
        subprocess.run(command, env=environment, cwd=ROOT, check=True)
        return json.loads(outcome.read_text())


def _tell(version, outcome):
    """Print the outcome; return the exit status."""
    expected = reasons(version)
    failed = {test: lines for test, lines in outcome.items() if lines is not None}
    by_suite = {}
    for test in outcome:
        by_suite.setdefault(test.split(".")[0], []).append(test)
    for suite, tests in by_suite.items():
        passed = sum(test not in failed for test in tests)
        print(f"{suite}: {passed} of {len(tests)} pass")
    print(f"{len(outcome) - len(failed)} of {len(outcome)} pass.")
    for test in sorted(failed.keys() & expected):
        print(f"  as expected: {test}: {expected[test]}")
    status = 0
    for test in sorted(failed.keys() - expected):
        print(f"\nFAILED {test}\n{failed[test]}")
        status = 1
    for test in sorted(expected.keys() - failed):
        there = "passes" if test in outcome else "is not there"
        print(f"\nOF THE TABLE {test} {there}: take it out.")
        status = 1
    return status


if __name__ == "__main__":
    main()
