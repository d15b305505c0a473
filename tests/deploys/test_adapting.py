"""Adapters, the fingerprint of a handler's signature, and former names of Types."""

import inspect

import pytest

from atp import queue, task_type
from atp.exceptions import CorruptData, InvalidType
from atp.models import Type
from atp.operations.registry import registry
from atp.payload.binding import DIGITS, adapt_arguments, fingerprint, plain_parameters, signature_of
from atp.reports import documents

from .conftest import SHADE

NEW = "deploys.renamed"
FITS = {"paths": ["a"], "zoom": 3}


def today(context, *, paths, zoom):
    """The current handler."""


def never(inputs):
    raise AssertionError


def fit(adapters, inputs):
    signature = signature_of(today)
    return adapt_arguments((signature, plain_parameters(signature)), adapters, inputs)


def test_adapters_are_called_in_order_until_the_inputs_fit():
    def second_release(inputs):
        return {"zoom": 3, **inputs}

    def third_release(inputs):
        return {"paths": [inputs.pop("path")], **inputs}

    assert fit([never], dict(FITS)) == (((), FITS), "")
    assert fit([second_release, third_release, never], {"path": "a"}) == (((), FITS), "")


def test_incompatible_inputs_and_faulty_adapters_are_reported():
    misfit = "argument 'paths' is required; there is no argument 'path' (did you mean 'paths'?)"
    assert fit([], {"path": "a"})[1] == misfit
    for adapter, told in (
        (lambda inputs: inputs["nothing"], "raised KeyError: 'nothing'"),
        (lambda inputs: None, "returned NoneType"),
        (lambda inputs: {1: 2}, "returned dict"),
        (lambda inputs: {"*": 7}, "returned no arguments"),
    ):
        _, why = fit([adapter], {"path": "a"})
        assert why.startswith("argument 'paths' is required")
        assert told in why
    with pytest.raises(CorruptData):
        fit([lambda inputs: inputs], [1])


def test_adapt_refuses_anything_but_a_plain_function_with_one_argument(shade):
    async def coroutine(inputs):
        return inputs

    for odd in (7, len, lambda: 0, lambda first, second: 0, coroutine):
        with pytest.raises(InvalidType, match=r"deploys\.shade\.adapt"):
            shade.adapt(odd)
    assert shade.adapters == []
    assert shade.adapt(never) is never
    assert shade.using(priority=1).adapters == [never]


def hash_of(handler, serializer="json", adapters=()):
    return fingerprint(signature_of(handler), serializer, adapters)


def test_handlers_that_take_the_same_inputs_have_one_fingerprint():
    assert len(hash_of(today)) == DIGITS
    alike = (
        lambda context, *, zoom, paths: 0,
        lambda context, paths, zoom: 0,
        lambda other, *, paths, zoom: 1,
    )
    assert {hash_of(other) for other in alike} == {hash_of(today)}
    for other in (
        lambda context, *, paths: 0,
        lambda context, *, paths, zoom=3: 0,
        lambda context, *, paths, level: 0,
        lambda context, *, paths, zoom, **more: 0,
        lambda context, *paths, zoom: 0,
        lambda context, zoom, paths, /: 0,
    ):
        assert hash_of(other) != hash_of(today), inspect.signature(other)


def test_serializer_and_adapters_change_the_fingerprint():
    def other(inputs):
        return {**inputs, "zoom": 3}

    scope = {}
    exec("def adapt(inputs): return inputs", scope)
    with pytest.raises(OSError, match="source"):
        inspect.getsource(scope["adapt"])
    hashes = {hash_of(today, adapters=each) for each in ([], [never], [other], [scope["adapt"]])}
    assert len(hashes | {hash_of(today, "pickle")}) == 5


@pytest.mark.django_db
def test_a_renamed_type_is_found_under_both_names(release):
    """The row of the former name keeps its registered options, gates and limits."""
    queue.register(release(today, timeout=7))
    queue.hold(SHADE)
    queue.limit(SHADE, max_running=1)
    release()
    given = {"formerly": [SHADE], "transactional": True, "backoff": [1, 2]}
    renamed = release(today, identifier=NEW, **given)
    queue.register(renamed)
    assert registry.get(SHADE) is registry.get(NEW) is renamed
    assert [str(each) for each in registry if each is renamed] == [NEW]
    assert (registry.is_former(SHADE), registry.is_former(NEW)) == (True, False)
    assert registry.is_transactional(SHADE)
    assert registry.backoff_steps(SHADE) == registry.backoff_steps(NEW) != ()
    assert queue.declared(SHADE).enqueue(**FITS).type.identifier == NEW
    assert Type.objects.get(identifier=SHADE).timeout.total_seconds() == 7
    assert [str(gate.type) for gate in queue.gates()] == [SHADE]
    assert [limit.max_running for limit in queue.limits(SHADE)] == [1]
    told = {each["identifier"]: each for each in documents.types()}
    assert told[SHADE]["declared"]
    assert told[NEW]["declared"]
    release(today, identifier=NEW)
    assert SHADE not in registry


def test_invalid_former_names_are_rejected(release):
    """A former name cannot be another Type's name, whichever is declared first."""
    for formerly, told in (
        ("deploys.old", "must be a list"),
        ([7], "is not an identifier"),
        (["no good"], "is not an identifier"),
        ([NEW], "is already a name of the Type"),
        (["deploys.old", "deploys.old"], "is already a name of the Type"),
        (["tests.echo"], "'tests.echo' is declared already"),
    ):
        with pytest.raises(InvalidType, match=told):
            release(today, identifier=NEW, formerly=formerly)
        assert NEW not in registry
    release(today, identifier=NEW, formerly=[SHADE])
    told = f"is a former name of {NEW!r} already"
    with pytest.raises(InvalidType, match=f"{SHADE!r} {told}"):
        task_type("deploys.third", formerly=[SHADE])(today)
    with pytest.raises(InvalidType, match=told):
        task_type(SHADE)(today)
