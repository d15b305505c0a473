"""Inputs and responses on a page: as text or as a picture, never as HTML (G14)."""

from dataclasses import dataclass

from ..payload import codec
from ..reports import documents
from ..web import raw
from ..words import wording

# Characters of a text that a page shows; the rest is behind a link.
SHOWN = 20_000


@dataclass(frozen=True, kw_only=True)
class ShownFile:
    """A published file; ``is_picture`` says whether the page may show it."""

    name: str
    content_type: str
    size: int
    attempt: int
    is_picture: bool


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A body on a page: a text, which may be cut; a picture; or only its type and size."""

    content_type: str = ""
    size: int = 0
    text: str | None = None
    is_cut: bool = False
    is_picture: bool = False
    files: tuple[ShownFile, ...] = ()


def shown_inputs(inputs):
    """Return Inputs as a page shows them; a pickle is never opened."""
    if inputs is None:
        return None
    if inputs.format != codec.JSON:
        return Shown(content_type=f"signed {inputs.format}")
    text = wording.indented(documents.shown_data(inputs))
    return Shown(content_type="application/json", text=text[:SHOWN], is_cut=len(text) > SHOWN)


def shown_response(response):
    """Return a Response as a page shows it; None if it has no output and no file."""
    if response is None or not (response.content_type or response.files):
        return None
    text = _text(response)
    return Shown(
        content_type=response.content_type,
        size=response.size,
        text=None if text is None else text[:SHOWN],
        is_cut=text is not None and len(text) > SHOWN,
        is_picture=raw.is_picture(response.content_type),
        files=tuple(_shown_file(entry) for entry in documents.files(response)),
    )


def _text(response):
    """Return the output as text; None if it is not text, or is stored in a file."""
    kind = raw.media_type(response.content_type)
    if response.data is None or not (
        kind in ("application/json", "image/svg+xml") or kind.startswith("text/")
    ):
        return None
    text = bytes(response.data).decode(errors="replace")
    return wording.indented(text) if kind == "application/json" else text


def _shown_file(entry):
    return ShownFile(
        name=entry["name"],
        content_type=entry["content_type"],
        size=entry["size"],
        attempt=entry["attempt"],
        is_picture=raw.is_picture(entry["content_type"]),
    )
