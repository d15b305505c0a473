"""``metrics``: the metrics of the queue, as Prometheus scrapes them."""

import os
import tempfile
from pathlib import Path

from django.core.management.base import CommandError

from ..base import Subcommand


class Metrics(Subcommand):
    name = "metrics"
    help = "Metrics for Prometheus: print them, or write them to a file."

    def add_arguments(self, parser):
        parser.add_argument(
            "--textfile",
            metavar="PATH",
            type=Path,
            help="write them to this file, whole or not at all, for the textfile collector of "
            "node_exporter; its name ends with .prom",
        )

    def run(self, options):
        try:
            from ...contrib.prometheus import exposition
        except ModuleNotFoundError as error:
            raise CommandError(
                f"Metrics need the package {error.name}, the extra [prometheus] of ATP."
            ) from None
        path = options["textfile"]
        if path is not None and path.suffix != ".prom":
            raise CommandError(f"{path}: the name must end with .prom, or nobody collects it.")
        text = exposition().decode()
        if path is None:
            return {"metrics": text}
        _write(path, text)
        return {"path": str(path), "size": len(text.encode())}

    def text(self, document):
        if "metrics" in document:
            return document["metrics"].rstrip("\n")
        return f"{document['path']}: {document['size']} bytes"


def _write(path, text):
    """Replace the file at once: who reads it meanwhile gets the old one or the new one.

    Others may be able to write in the folder. So the new file has a random name that nobody has
    taken, as a link for example.
    """
    new = None
    try:
        descriptor, new = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fchmod(file.fileno(), 0o644)  # the collector is another user
            os.fsync(file.fileno())
        os.replace(new, path)
    except OSError as error:
        if new is not None:
            Path(new).unlink(missing_ok=True)
        raise CommandError(f"{path} cannot be written: {error.strerror}.") from None
