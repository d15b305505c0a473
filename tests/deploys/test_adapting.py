"""Adapters, and the signature of a handler as a hash."""

import inspect

import pytest

from atp.exceptions import CorruptData, InvalidType
from atp.payload.adapting import DIGITS, fingerprint, fitted
from atp.payload.binding import plain_of, signature_of


def signatures(handler):
    signature = signature_of(handler)
    return signature, plain_of(signature)


def today(context, *, paths, zoom):
    """The handler of today."""


FITS = {"paths": ["a"], "zoom": 3}


def test_what_fits_is_not_adapted():
    def never(inputs):
        raise AssertionError

    assert fitted(signatures(today), [never], dict(FITS)) == (((), FITS), "")


def test_adapters_are_called_one_after_the_other_until_it_fits():
    def second_release(inputs):
        return {"zoom": 3, **inputs}

    def third_release(inputs):
        return {"paths": [inputs.pop("path")], **inputs}

    def never(inputs):
        raise AssertionError

    adapters = [second_release, third_release, never]
    assert fitted(signatures(today), adapters, {"path": "a"}) == (((), FITS), "")


def test_without_adapters_it_is_told_what_does_not_fit():
    _, why = fitted(signatures(today), [], {"path": "a"})
    assert why == (
        "argument 'paths' is required; there is no argument 'path' (did you mean 'paths'?)"
    )


@pytest.mark.parametrize(
    ("adapter", "told"),
    [
        (lambda inputs: inputs["nothing"], "raised KeyError: 'nothing'"),
        (lambda inputs: None, "returned NoneType"),
        (lambda inputs: {1: 2}, "returned dict"),
        (lambda inputs: {"*": 7}, "returned no arguments"),
    ],
)
def test_an_adapter_that_is_wrong(adapter, told):
    _, why = fitted(signatures(today), [adapter], {"path": "a"})
    assert why.startswith("argument 'paths' is required")
    assert told in why


def test_inputs_that_are_no_arguments():
    with pytest.raises(CorruptData):
        fitted(signatures(today), [lambda inputs: inputs], [1])


class TestDeclaring:
    @pytest.mark.parametrize(
        "function",
        [7, len, lambda: 0, lambda first, second: 0],
        ids=["no function", "built in", "of nothing", "of two"],
    )
    def test_what_is_no_adapter(self, shade, function):
        with pytest.raises(InvalidType, match=r"deploys\.shade\.adapt"):
            shade.adapt(function)
        assert shade.adapters == []

    def test_a_coroutine(self, shade):
        async def adapt(inputs):
            return inputs

        with pytest.raises(InvalidType, match="an adapter is a function"):
            shade.adapt(adapt)

    def test_it_stays_what_it_was(self, shade):
        def adapt(inputs):
            return inputs

        assert shade.adapt(adapt) is adapt
        assert shade.using(priority=1).adapters == [adapt]


def hash_of(handler, serializer="json", adapters=()):
    return fingerprint(signature_of(handler), serializer, adapters)


class TestFingerprint:
    def test_it_is_short(self):
        assert len(hash_of(today)) == DIGITS

    @pytest.mark.parametrize(
        "other",
        [
            lambda context, *, zoom, paths: 0,
            lambda context, paths, zoom: 0,
            lambda other, *, paths, zoom: 1,
        ],
        ids=["order", "by position too", "body"],
    )
    def test_the_same_inputs_fit(self, other):
        assert hash_of(other) == hash_of(today)

    @pytest.mark.parametrize(
        "other",
        [
            lambda context, *, paths: 0,
            lambda context, *, paths, zoom=3: 0,
            lambda context, *, paths, level: 0,
            lambda context, *, paths, zoom, **more: 0,
            lambda context, *paths, zoom: 0,
            lambda context, zoom, paths, /: 0,
        ],
        ids=["fewer", "optional", "renamed", "any", "many", "by position"],
    )
    def test_other_inputs_fit(self, other):
        assert hash_of(other) != hash_of(today)

    def test_the_serializer_counts(self):
        assert hash_of(today, "pickle") != hash_of(today)

    def test_adapters_count(self):
        def first(inputs):
            return inputs

        def second(inputs):
            return {**inputs, "zoom": 3}

        hashes = {hash_of(today, adapters=each) for each in ([], [first], [second])}
        assert len(hashes) == 3

    def test_an_adapter_without_source(self):
        scope = {}
        exec("def adapt(inputs): return inputs", scope)
        with pytest.raises(OSError, match="source"):
            inspect.getsource(scope["adapt"])
        assert hash_of(today, adapters=[scope["adapt"]]) != hash_of(today)
