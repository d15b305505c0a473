"""The arguments of an Instance and its output: Inputs and Response."""

from typing import Any

from django.core.files import File
from django.core.files.storage import storages
from django.db import models
from django.utils.http import parse_header_parameters

from ..conf import settings
from ..payload import codec, tagged_json
from .instance import Instance


class Inputs(models.Model):
    """The serialized arguments of one Instance."""

    instance = models.OneToOneField(Instance, models.CASCADE, primary_key=True, db_constraint=False)
    format = models.CharField(max_length=8, default=codec.JSON)
    data = models.TextField()

    class Meta:
        verbose_name_plural = "inputs"

    def __str__(self) -> str:
        return f"inputs of {self.instance_id}"

    @property
    def value(self) -> Any:
        """The arguments as written: a dict of keyword arguments, positional ones under "*"."""
        return codec.decode(codec.Payload(self.format, self.data))

    @property
    def carried(self) -> dict[str, Any]:
        """The values that the enqueue saved for the handler, by carrier; empty if it saved none."""
        # Inputs outlive their Instance by a moment; Inputs that are not stored have none.
        rows = Instance.objects.using(self._state.db or settings.DATABASE)
        found = None if self.pk is None else rows.filter(pk=self.pk).first()
        return {} if found is None else found.carried


class Response(models.Model):
    """The output of one Instance: content type and data, or a stored file when large.

    ``files`` describes the files that the handler published: a list of
    objects with ``name``, ``path`` (in Django's storage), ``content_type``,
    ``size`` (bytes) and ``attempt``.
    """

    instance = models.OneToOneField(
        Instance, models.CASCADE, primary_key=True, related_name="response"
    )
    content_type = models.CharField(max_length=127, blank=True, default="")
    data = models.BinaryField(null=True)
    file = models.CharField(max_length=255, blank=True, default="")
    size = models.PositiveBigIntegerField(default=0, help_text="Bytes of the output.")
    files = models.JSONField(default=list)

    def __str__(self) -> str:
        return f"response of {self.instance_id}"

    def open(self) -> File:
        """Return the output as a binary file object, if it is stored as a file."""
        return storages[settings.STORAGE].open(self.file)

    @property
    def body(self) -> bytes | None:
        """The raw output in bytes; None if the handler returned nothing."""
        if self.file:
            with self.open() as stored:
                return stored.read()
        return None if self.data is None else bytes(self.data)

    @property
    def value(self) -> Any:
        """The output as the handler returned it: JSON decoded, text as str, else bytes.

        Text that its charset (by default UTF-8) does not fit is bytes, too.
        """
        body = self.body
        if body is None:
            return None
        if self.is_pickle:
            return codec.decode(codec.Payload(codec.PICKLE, body.decode()))
        kind = self._kind
        if kind == "application/json":
            return tagged_json.from_json(body.decode())
        return self._text(body) if kind.startswith("text/") else body

    def _text(self, body: bytes) -> str | bytes:
        """Decode the body by the charset that its content type names; if that fails, return it."""
        try:
            charset = parse_header_parameters(self.content_type)[1].get("charset", "utf-8")
            return body.decode(charset)
        except (LookupError, ValueError):
            return body

    @property
    def is_pickle(self) -> bool:
        """Whether :attr:`value` has to open a pickle."""
        return self._kind == codec.PICKLE_CONTENT_TYPE

    @property
    def _kind(self) -> str:
        return self.content_type.partition(";")[0].strip().lower()

    @property
    def stored_paths(self) -> list[str]:
        """Paths of everything that this Response keeps in Django's storage."""
        return [self.file] * bool(self.file) + [entry["path"] for entry in self.files]
