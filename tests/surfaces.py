"""The surfaces on which a verb of the table is used: each in the way that the table says."""

import contextlib
import io
import json
import re
from dataclasses import dataclass

from django.contrib.auth.models import User
from django.contrib.messages import get_messages
from django.core.management import CommandError, call_command
from django.urls import reverse

from atp.models import Type
from atp.operations.operation import Delay, Inputs, Moment, Number, WholeNumber
from atp.operations.table import INSTANCE, TARGET
from atp.shell.arguments import option_name

from .api.client import Api
from .generated import NAMES, address, subcommand


@dataclass(frozen=True)
class Answer:
    """What a surface answers: whether it was done, and the words."""

    is_done: bool
    words: str


class Shell:
    name = "shell"

    def use(self, kind, verb, subject, given):
        """Use a verb; ``given`` are values as text, by the names of parameters."""
        words = subcommand(kind, verb).split()
        options = [text for name, value in given.items() for text in (_option(verb, name), value)]
        out = io.StringIO()
        try:
            call_command("atp", *words, *_arguments(kind, verb, subject), *options, stdout=out)
        except CommandError as error:
            return Answer(False, str(error))
        return Answer(True, out.getvalue())


def _option(verb, name):
    found = {parameter.name: option_name(parameter) for parameter in verb.parameters}
    return found.get(name, f"--{name}")


def _arguments(kind, verb, subject):
    if kind == TARGET:
        pairs = zip(("--type", "--collection"), subject, strict=True)
        return [text for flag, value in pairs if value is not None for text in (flag, value)]
    more = ["--cancel", "--wait", "0"] if (kind, verb.name) == (INSTANCE, "delete") else []
    return [_name_of(kind, subject), *more]


def _name_of(kind, subject):
    """Return how a subject is called in addresses, and in the shell."""
    return subject[0] if kind == TARGET else str(getattr(subject, NAMES.get(kind, "uuid")))


def _forget_messages(client):
    """What is told of one use is not told of the next, too."""
    client.cookies.pop("messages", None)


class Pages:
    name = "page"

    def __init__(self, client):
        self._client = client

    def use(self, kind, verb, subject, given):
        _forget_messages(self._client)
        path = self.address(kind, verb, subject)
        answer = self._client.post(path, given)
        if answer.status_code == 200 and 'name="sure"' in answer.content.decode():
            answer = self._client.post(path, {**given, "sure": "yes"})
        told = " ".join(str(message) for message in get_messages(answer.wsgi_request))
        return Answer(answer.status_code == 302, told or answer.content.decode())

    @staticmethod
    def address(kind, verb, subject):
        name = _name_of(kind, subject)
        if kind == TARGET:
            query = "" if subject[1] is None else f"?collection={subject[1]}"
            return f"/atp/types/{name}/{verb.name}/{query}"
        return f"/atp/{kind}s/{name}/{verb.name}/"


class RestApi:
    name = "API"

    def __init__(self):
        self._api = Api(User.objects.create_superuser("root of the API", password="secret"))

    def use(self, kind, verb, subject, given):
        method, _, path = address(kind, verb).partition(" ")
        known = {parameter.name: parameter for parameter in verb.parameters}
        body = {
            known[name].json_name if name in known else name: _in_json(known.get(name), value)
            for name, value in given.items()
        }
        if kind == TARGET:
            type, collection = subject
            body |= {"type": type, **_modes(verb)} if verb.of else {}
            body |= {} if collection is None else {"collection": collection}
        path = path.format(**{NAMES.get(kind, "uuid"): _name_of(kind, subject)})
        answer = self._api.send(method, path, body)
        return Answer(answer.status_code < 300, answer.body.decode())


def _in_json(parameter, value):
    """Return the value of JSON that stands for a text; numbers are numbers there."""
    if parameter is None:
        return value
    if type(parameter.kind) in (Delay, Moment) and re.fullmatch(r"(\d+[smhd])+", value):
        return parameter.kind.from_text(value).total_seconds()
    if isinstance(parameter.kind, (WholeNumber, Number, Inputs)):
        with contextlib.suppress(ValueError):
            return json.loads(value, parse_constant=str)
    return value


def _modes(verb):
    if verb.of == "gate":
        return {"mode": verb.name}
    return {} if verb.parameters else {"default": True}


class Admin:
    name = "admin"

    def __init__(self, client):
        self._client = client

    @staticmethod
    def offers(kind, verb):
        """Whether it has the verb: one that needs nothing but its subject."""
        return not verb.has_page or (kind, verb.name) == (INSTANCE, "delete")

    def use(self, kind, verb, subject, given):
        _forget_messages(self._client)
        row = Type.objects.get(identifier=subject[0]) if kind == TARGET else subject
        name = "delete_selected" if verb.name == "delete" else verb.id
        answer = self._client.post(
            reverse(f"admin:atp_{row._meta.model_name}_changelist"),
            {"action": name, "_selected_action": [row.pk], "post": "yes"},
        )
        told = list(get_messages(answer.wsgi_request))
        is_done = bool(told) and all(message.level_tag == "success" for message in told)
        return Answer(is_done, " ".join(map(str, told)))
