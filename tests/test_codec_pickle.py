"""Tests of :mod:`atp.payload.codec`: pickles are signed, and only on request (G14)."""

from datetime import date
from uuid import UUID

import pytest
from django.core import signing

from atp.exceptions import CorruptData, InvalidType, NotSerializable, TooLarge
from atp.payload import codec
from atp.payload.codec import Payload, decode, encode


class Forgotten:
    """A class that is gone when its pickle is read."""


@pytest.fixture
def allowed(settings):
    settings.ATP = {"ALLOW_PICKLE": True}


def test_it_is_written_and_read_only_on_request(settings, allowed):
    codec.check_format(codec.PICKLE)
    value = {1: {2, 3}, "x": UUID(int=5), date(2026, 1, 1): 1j}
    payload = encode(value, format=codec.PICKLE)
    assert decode(payload) == value
    with pytest.raises(TooLarge):
        encode("a" * 100, format=codec.PICKLE, limit=100)
    settings.ATP = {}
    with pytest.raises(InvalidType, match="ALLOW_PICKLE"):
        codec.check_format(codec.PICKLE)
    with pytest.raises(CorruptData, match="ALLOW_PICKLE"):
        decode(payload)


def test_tampering_is_found_before_anything_is_loaded(allowed, settings, monkeypatch):
    payload = encode("innocent", format=codec.PICKLE)
    other = encode("harmful", format=codec.PICKLE)
    body, _, signature = payload.data.rpartition(":")
    monkeypatch.setattr(codec.pickle, "loads", lambda raw: pytest.fail("loaded"))
    for forged in (
        other.data.rpartition(":")[0] + ":" + signature,
        body,
        body + ":",
        body + ":" + signature[:-1],
        signing.Signer().sign(body),  # made for something else
        "",
    ):
        with pytest.raises(CorruptData, match="signature"):
            decode(Payload(codec.PICKLE, forged))
    settings.SECRET_KEY = "another"
    with pytest.raises(CorruptData, match="signature"):
        decode(payload)


def test_what_was_stored_long_ago_is_read(settings, allowed):
    """The module has moved since; its old name stands in the signature."""
    settings.SECRET_KEY = "a key that stays"
    stored = "gAWVEwAAAAAAAAB9lIwEZGF5c5SPlChLAUsCkHMu:pmRcmC0NsmrlnBvdSFNpohVge6QYGpAyAdAdz0gUFYg"
    assert decode(Payload(codec.PICKLE, stored)) == {"days": {1, 2}}


def test_what_cannot_be_pickled_or_loaded_any_more(allowed, monkeypatch):
    with pytest.raises(NotSerializable, match="cannot be pickled"):
        encode(lambda: None, format=codec.PICKLE, what="Inputs")
    payload = encode(Forgotten(), format=codec.PICKLE)
    monkeypatch.delitem(globals(), "Forgotten")
    with pytest.raises(CorruptData, match="Forgotten"):
        decode(payload)
