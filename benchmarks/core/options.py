"""The command line: what all benchmarks have, and the options of each.

Benchmarks may share an option by its name; each has a default of its own.
"""

import argparse
import json
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from .database import KINDS


@dataclass(kw_only=True)
class _Flag:
    """An option of one benchmark or more; ``defaults`` by benchmark."""

    type: type
    help: str
    defaults: dict = field(default_factory=dict)

    @property
    def metavar(self):
        return "TEXT" if self.type is str else "N"

    @property
    def told(self):
        """Its help, with the defaults."""
        values = set(self.defaults.values())
        if values == {""}:
            return self.help
        if len(values) == 1:
            return f"{self.help} ({values.pop()})"
        return f"{self.help} ({', '.join(f'{n} {value}' for n, value in self.defaults.items())})"


def parsed(benchmarks, arguments, *, always):
    """Return the options that were given, for benchmarks by name; ``always`` if none is named."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measures how fast ATP is, on a fresh database that is removed afterwards.",
        epilog="DATABASE_URL names a server to use instead of starting one.",
    )
    add = parser.add_argument
    others = ", ".join(name for name in benchmarks if name not in always)
    told = f"all but {others}" if others else "all"
    add("names", nargs="*", metavar="NAME", help=f"{', '.join(benchmarks)}; if none: {told}")
    add("--database", choices=KINDS, help="PostgreSQL if neither this nor DATABASE_URL says")
    add("--json", metavar="FILE", type=Path, help="write the figures to it too")
    add("--runs", metavar="N", type=int, default=5, help="runs that a median is of (5)")
    add(
        "--set",
        metavar="KEY=VALUE",
        type=_setting,
        action="append",
        default=[],
        help="a key of settings.ATP; may be repeated",
    )
    add("--against", metavar="COMMIT", help="run beside the code of an earlier commit, in turn")
    flags = _flags(benchmarks)
    for name, benchmark in benchmarks.items():
        group = parser.add_argument_group(name, benchmark.__doc__.split("\n\n")[0])
        for flag, found in flags.items():
            if next(iter(found.defaults)) == name:
                group.add_argument(flag, metavar=found.metavar, type=found.type, help=found.told)
    options = parser.parse_args(arguments)
    for name in options.names:
        if name not in benchmarks:
            parser.error(f"there is no benchmark {name!r}: choose from {', '.join(benchmarks)}")
    options.names = options.names or list(always)
    return options


def own(benchmark, options):
    """Return the options that a benchmark has, by name: as they were given, else its defaults."""
    found = {}

    def add(flag, *, default, **_):
        name = flag.removeprefix("--").replace("-", "_")
        given = getattr(options, name)
        found[name] = default if given is None else given

    benchmark.add_arguments(add)
    return found


def as_arguments(benchmark, options):
    """Return a benchmark's options as a command line has them, for another process."""
    given = [
        f"--{name.replace('_', '-')}={value}" for name, value in own(benchmark, options).items()
    ]
    settings = [f"--set={key}={json.dumps(value)}" for key, value in options.set]
    database = [f"--database={options.database}"] if options.database else []
    return [*given, *settings, *database]


def _flags(benchmarks):
    """Return the options of all benchmarks, by flag."""
    flags = {}
    for name, benchmark in benchmarks.items():
        benchmark.add_arguments(partial(_add_flag, flags, name))
    return flags


def _add_flag(flags, name, flag, *, type, default, help):
    flags.setdefault(flag, _Flag(type=type, help=help)).defaults[name] = default


def _setting(text):
    key, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value
