"""The targets of webhooks in ``ATP["WEBHOOKS"]``, and the problems with this setting.

Only this setting has addresses to connect to: the database has just names of targets (G14).
"""

import base64
import binascii
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from ..words.hints import did_you_mean
from ..words.options import check_text, is_pattern

# The keys of a target that list patterns of Types, each with the hooks that it stands for.
ENDS = {
    "on": ("on_finished", "on_failed"),
    "on_finished": ("on_finished",),
    "on_failed": ("on_failed",),
}
_KEYS = ("url", "secret", *ENDS, "allow_http")
_PREFIX = "whsec_"
# The length of the key in a secret, in bytes, as the Standard Webhooks require.
_SHORTEST, _LONGEST = 24, 64


@dataclass(frozen=True)
class Target:
    """A system that webhooks tell of ends. The newest of its ``keys`` comes first."""

    name: str
    url: str
    keys: tuple[bytes, ...]
    # Pairs of the name of a hook and a pattern of Types.
    patterns: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        # Its address may hold a password of its own.
        return f"<webhook {self.name}>"


def target_of(name: str, given: Mapping[str, Any]) -> Target:
    """Return the Target for an entry of the setting that has no :func:`problems`."""
    return Target(
        name,
        given["url"],
        tuple(key for key in map(_key, _listed(given["secret"])) if key is not None),
        tuple(
            (on, each) for key, names in ENDS.items() for each in given.get(key, ()) for on in names
        ),
    )


def problems(given: Mapping[Any, Any]) -> Iterator[str]:
    """Yield the problems with the setting, as sentences."""
    for name, target in given.items():
        told = f"ATP['WEBHOOKS'][{name!r}]"
        problem = _name_problem(name)
        if problem:
            yield f"ATP['WEBHOOKS']: {problem}"
        elif not isinstance(target, Mapping):
            yield f"{told} must be a dictionary, not {type(target).__name__}."
        else:
            yield from (f"{told}{problem}" for problem in _target_problems(target))


def _name_problem(name: Any) -> str:
    try:
        check_text("the name of a target", name, empty=False)
    except ValueError as error:
        return str(error)
    return ""


def _target_problems(target: Mapping[Any, Any]) -> Iterator[str]:
    for key in target:
        if key not in _KEYS:
            yield f" has an unknown key {key!r}.{did_you_mean(str(key), _KEYS)}"
    for key in ("url", "secret"):
        if key not in target:
            yield f" has no {key!r}."
    allows = target.get("allow_http", False)
    if not isinstance(allows, bool):
        yield f"['allow_http'] must be True or False, not {allows!r}."
    if "url" in target:
        problem = _url_problem(target["url"], allows is True)
        if problem:
            yield f"['url']: {problem}"
    if "secret" in target:
        secrets = _listed(target["secret"])
        if not secrets or any(_key(each) is None for each in secrets):
            # Not the value itself: this is printed.
            yield (
                f"['secret'] must be {_PREFIX!r} and {_SHORTEST} to {_LONGEST} random bytes in "
                "base64, or a list of such, the newest first."
            )
    for key in ENDS:
        patterns = target.get(key, ())
        if not isinstance(patterns, (list, tuple)) or not all(map(is_pattern, patterns)):
            yield f"[{key!r}] must be a list of patterns of Types, as ['dem.*'], not {patterns!r}."


def _url_problem(url: Any, allows_http: bool) -> str:
    if not isinstance(url, str) or not url.isprintable() or " " in url:
        return "it must be the text of an address, without spaces."
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        return f"it is no address: {error}."
    if not f"{parts.path}{parts.query}".isascii():
        return "its path and query must be ASCII: percent-encode them."
    if parts.scheme not in ("https", "http") or not parts.hostname:
        return "it must begin with https:// and a host."
    if parts.username is not None or parts.fragment:
        return "it must have no user, no password and no '#'."
    if parts.scheme == "http" and not allows_http:
        return "it must begin with https://; else say 'allow_http': True beside it."
    return ""


def _listed(secret: Any) -> list[Any]:
    return list(secret) if isinstance(secret, (list, tuple)) else [secret]


def _key(secret: Any) -> bytes | None:
    """Return the key in a secret; None if the secret is not valid."""
    if not isinstance(secret, str) or not secret.startswith(_PREFIX):
        return None
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        return None
    return key if _SHORTEST <= len(key) <= _LONGEST else None
