"""Tests that pickles are signed, and used only if the settings allow them (G14)."""

from datetime import date
from uuid import UUID

import pytest
from django.core import signing

from atp.exceptions import CorruptData, InvalidType, NotSerializable, TooLarge
from atp.payload import codec
from atp.payload.codec import Payload, decode, encode


class Forgotten:
    """A class that no longer exists when its pickle is loaded."""


@pytest.fixture
def allowed(settings):
    settings.ATP = {"ALLOW_PICKLE": True}


def test_pickle_is_written_and_read_only_with_allow_pickle(settings, allowed):
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


def test_forged_pickle_is_rejected_and_never_loaded(allowed, settings, monkeypatch):
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


def test_pickle_stored_by_an_old_release_can_be_read(settings, allowed):
    """The signature contains the old name of the codec module, which has moved since."""
    settings.SECRET_KEY = "a key that stays"
    stored = "gAWVEwAAAAAAAAB9lIwEZGF5c5SPlChLAUsCkHMu:pmRcmC0NsmrlnBvdSFNpohVge6QYGpAyAdAdz0gUFYg"
    assert decode(Payload(codec.PICKLE, stored)) == {"days": {1, 2}}


def test_value_that_cannot_be_pickled_or_loaded_raises_a_named_exception(allowed, monkeypatch):
    with pytest.raises(NotSerializable, match="cannot be pickled"):
        encode(lambda: None, format=codec.PICKLE, what="Inputs")
    payload = encode(Forgotten(), format=codec.PICKLE)
    monkeypatch.delitem(globals(), "Forgotten")
    with pytest.raises(CorruptData, match="Forgotten"):
        decode(payload)
