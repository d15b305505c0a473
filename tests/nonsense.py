"""Nonsense in the place of the messages that ATP writes to the log: nothing depends on them.

Each message is another one each time that it is made, so that code which compares two of them
fails. Its second word stands for the function that makes it and its last for the original, so
a test can still tell which message it is.
"""

import functools
import hashlib
import inspect
import os

from atp import messages

from . import environment

_CONSONANTS, _VOWELS = "bdfgklmnprstvwxz", "aeiouy"


def install():
    """Replace the functions that make the messages, in this process."""
    for name, make in inspect.getmembers(messages, inspect.isfunction):
        if make.__module__ == messages.__name__ and not name.startswith("_"):
            setattr(messages, name, _nonsense(make))


def tells(message, part):
    """Whether a message of the log contains this ``part``, made by the function that makes it."""
    return (part.split()[-1] if environment.is_nonsense() else part) in message


def is_made_by(message, make, words):
    """Whether a message contains one that this function makes; it has these words, in English."""
    return (_stand_in(make.__name__) if environment.is_nonsense() else words) in message


def without_noise(message):
    """Return what of a message is the same whenever it is made."""
    return message.partition(" ")[2] if environment.is_nonsense() else message


def _nonsense(make):
    @functools.wraps(make)
    def speak(*args, **values):
        original = make(*args, **values)
        return f"{_word(os.urandom(6))} {_stand_in(make.__name__)} {_stand_in(original)}"

    return speak


def _stand_in(text):
    return _word(hashlib.sha256(text.encode()).digest()[:8])


def _word(data):
    """Return a word without a digit, and without a word of any language but by chance."""
    return "".join(
        _CONSONANTS[byte % len(_CONSONANTS)] + _VOWELS[byte // len(_CONSONANTS) % len(_VOWELS)]
        for byte in data
    )
