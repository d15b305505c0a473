"""Roll from one release to the next and back: ``python -m tests.deploys [options]``.

The run uses a scratch database and real processes. The exit status is 1 if a Task FAILED while a
compatible daemon lived, or if the check before a switch missed a case.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path


def main(argv=None):
    """Run the deploy and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.deploys", description=__doc__)
    add = parser.add_argument
    add("--count", type=int, default=20, help="Instances of each Type at a time (%(default)s)")
    add("--database", choices=["postgres", "sqlite"], default="postgres")
    add("--measure", type=int, metavar="COUNT", help="time the look at so many that wait instead")
    options = parser.parse_args(argv)
    os.environ |= {
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "ATP_TEST_DATABASE": options.database,
    }
    import django

    django.setup()
    from django.core.management import call_command

    from .rolling import Rolling

    call_command("migrate", verbosity=0)
    if options.measure:
        from .measure import measure

        return measure(options.measure)
    began = time.monotonic()

    def tell(line):
        print(f"{time.monotonic() - began:7.1f} s  {line}", flush=True)

    with (
        tempfile.TemporaryDirectory(prefix="atp-deploys-") as folder,
        Rolling(Path(folder), count=options.count, tell=tell) as rolling,
    ):
        try:
            rolling.roll()
        except AssertionError as error:
            print(f"NOT AS IT SHOULD BE: {error}")
            return 1
    tell("nothing was FAILED, and every case was named before its switch")
    return 0


if __name__ == "__main__":
    sys.exit(main())
