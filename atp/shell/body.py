"""Writing a raw response to a file or to stdout."""

import shutil
from contextlib import closing
from io import BytesIO
from pathlib import Path

from django.core.management.base import CommandError

from . import present


def write_body(response, target, command):
    """Write the body of a Response to the path ``target``, or to stdout if that is "-"."""
    with closing(_opened(response)) as body:
        if target != "-":
            _to_file(body, target)
        elif command.stdout.isatty():
            _to_terminal(body, response, command)
        else:
            _to_pipe(body, command)


def _opened(response):
    if not response.file:
        return BytesIO(response.body)
    try:
        return response.open()
    except OSError as error:
        raise CommandError(f"The stored response cannot be read: {error}") from error


def _to_file(body, target):
    try:
        with Path(target).open("wb") as file:
            shutil.copyfileobj(body, file)
    except OSError as error:
        raise CommandError(f"{target} cannot be written: {error.strerror}.") from error


def _to_pipe(body, command):
    stream = getattr(command.stdout, "buffer", None)
    if stream is None:  # call_command() collects text
        command.stdout.write(_text(body), ending="")
        return
    command.stdout.flush()
    shutil.copyfileobj(body, stream)
    stream.flush()


def _to_terminal(body, response, command):
    """Write a text with its control characters escaped. Refuse a body that is not text."""
    kind = response.content_type.partition(";")[0].strip().lower()
    if not (kind == "application/json" or kind.startswith("text/")):
        raise CommandError(
            f"The response is {response.content_type or 'binary'}: not for a terminal. "
            "Give --response a file, or redirect it."
        )
    command.stdout.write("\n".join(present.lines(_text(body))))


def _text(body):
    try:
        return body.read().decode()
    except UnicodeDecodeError:
        raise CommandError("The response is not text: give --response a file.") from None
