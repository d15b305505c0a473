"""Exceptions that misbehave when they are inspected, and handlers that raise them."""

import asyncio
import weakref
from dataclasses import dataclass
from datetime import timedelta

from atp import Defer, Fatal, Retry, Throttled, task_type
from atp.exceptions import Unavailable


def raising(error=RuntimeError):
    def refuse(self, *args, **kwargs):
        raise error("not like this")

    return refuse


def made(base, **body):
    return type("Odd", (base,), body)("x")


def changed(error, **attributes):
    for name, value in attributes.items():
        setattr(error, name, value)
    return error


def without_super(base, **body):
    """Return an exception whose constructor does not call the base constructor."""
    return made(base, __init__=lambda self, *args: None, **body)


def refusing(base, name):
    """Return an exception with one attribute that raises when it is read."""
    return without_super(base, **{name: property(raising())})


def in_a_ring():
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    return first


def in_a_chain(length=3000):
    error = ValueError("innermost")
    for _ in range(length):
        outer = ValueError("x")
        outer.__context__, error = error, outer
    return error


def deep_group(innermost, depth=3000):
    for _ in range(depth):
        innermost = ExceptionGroup("deeper", [innermost])
    return innermost


class Text(str):
    """A str whose methods all raise."""

    __slots__ = ()

    __format__ = __len__ = __getitem__ = replace = encode = strip = splitlines = raising()
    __add__ = __radd__ = __mod__ = __hash__ = __reduce_ex__ = raising()


class Liar(type):
    """A metaclass whose attributes and checks all raise."""

    __name__ = __doc__ = __dict__ = property(raising())
    # Python 3.11 itself asks __subclasscheck__ of what is raised.
    __instancecheck__ = __getattribute__ = __repr__ = raising()


def lying(base=ValueError):
    """Return an exception of a class that lies.

    It is made anew: libraries look at all subclasses of BaseException when they are imported.
    """
    return Liar("Lying", (base,), {})("x")


@dataclass(frozen=True)
class Frozen(Fatal):
    """An exception whose attributes cannot be set, not even its traceback."""

    job: int


class Recursing(Exception):
    def __str__(self):
        return str(self)

    __repr__ = __str__


class RecursingFatal(Fatal):
    def __str__(self):
        return str(self)


def of_a_name():
    class Names:
        def __dir__(self):
            return [1, None, Text("x")]

        __getattr__ = raising()

    return AttributeError("x", name=Text("y"), obj=Names())


# The name of each, what makes it, the kind of the outcome that its class stands for.
ODD = {
    "str raises": (lambda: made(ValueError, __str__=raising()), "error"),
    "str exits": (lambda: made(ValueError, __str__=raising(SystemExit)), "error"),
    "str returns None": (lambda: made(ValueError, __str__=lambda self: None), "error"),
    "str returns odd text": (lambda: made(ValueError, __str__=lambda self: Text("x")), "error"),
    "str recurses": (lambda: Recursing("x"), "error"),
    "str is huge": (lambda: ValueError("x" * 20_000_000), "error"),
    "an odd argument": (lambda: ValueError(made(ValueError, __repr__=raising())), "error"),
    "surrogates": (lambda: ValueError("\ud800\udfff"), "error"),
    "NULs": (lambda: ValueError("a\0b\0"), "error"),
    "no words": (ValueError, "error"),
    "everything raises": (lambda: made(ValueError, __getattribute__=raising()), "error"),
    "notes raise": (lambda: refusing(ValueError, "__notes__"), "error"),
    "notes are no text": (lambda: changed(ValueError("x"), __notes__=[5, None, b"x"]), "error"),
    "notes are a number": (lambda: changed(ValueError("x"), __notes__=5), "error"),
    "cause raises": (lambda: refusing(ValueError, "__cause__"), "error"),
    "traceback raises": (lambda: refusing(ValueError, "__traceback__"), "error"),
    "a lying cause": (lambda: changed(ValueError("x"), __cause__=lying()), "error"),
    "causes in a ring": (in_a_ring, "error"),
    "causes in a chain": (in_a_chain, "error"),
    "class raises": (lambda: refusing(ValueError, "__class__"), "error"),
    "class lies": (lambda: made(ValueError, __class__=property(lambda self: Fatal)), "error"),
    "dict raises": (lambda: refusing(ValueError, "__dict__"), "error"),
    "hash and eq raise": (lambda: made(ValueError, __eq__=raising(), __hash__=raising()), "error"),
    "a lying metaclass": (lying, "error"),
    "the module is a number": (lambda: made(ValueError, __module__=5), "error"),
    "the module is odd": (lambda: made(ValueError, __module__=Text("x\0\ud800")), "error"),
    "a long name": (lambda: made(ValueError, __qualname__="O" * 100_000), "error"),
    "a syntax error": (
        lambda: changed(SyntaxError("x"), filename=5, lineno="soon", text=b"\xff", offset=object()),
        "error",
    ),
    "an attribute error": (of_a_name, "error"),
    "a decoding error": (lambda: UnicodeDecodeError("x", b"y", -5, 10**9, "z"), "error"),
    "an OSError": (lambda: OSError(10**6, made(ValueError, __str__=raising())), "error"),
    "a SystemExit": (lambda: SystemExit(made(ValueError, __str__=raising())), "error"),
    "a cancellation": (lambda: asyncio.CancelledError("x"), "error"),
    "a KeyboardInterrupt": (KeyboardInterrupt, "error"),
    "a group": (lambda: ExceptionGroup("x", [ValueError(1), lying()]), "error"),
    "a deep group": (lambda: deep_group(ValueError("x")), "error"),
    "a group of many": (
        lambda: ExceptionGroup("x", [ValueError(n) for n in range(5000)]),
        "error",
    ),
    "a fatal one and another": (lambda: ExceptionGroup("x", [Fatal("x"), Retry("y")]), "error"),
    "fatal, str raises": (lambda: made(Fatal, __str__=raising()), "fatal"),
    "fatal, str recurses": (lambda: RecursingFatal("x"), "fatal"),
    "fatal, no super": (lambda: without_super(Fatal), "fatal"),
    "fatal, fingerprint raises": (lambda: refusing(Fatal, "fingerprint"), "fatal"),
    "fatal, everything raises": (lambda: made(Fatal, __getattribute__=raising()), "fatal"),
    "fatal, frozen": (lambda: Frozen(5), "fatal"),
    "fatal, lying": (lambda: lying(Fatal), "fatal"),
    "fatal, class lies": (lambda: made(Fatal, __class__=property(lambda self: Retry)), "fatal"),
    "fatal, alone in groups": (lambda: deep_group(Fatal("x"), 3), "fatal"),
    "retry, no super": (lambda: without_super(Retry), "retry"),
    "retry, after raises": (lambda: refusing(Retry, "after"), "retry"),
    "retry, after is text": (lambda: changed(without_super(Retry), after="soon"), "retry"),
    "retry, after is no number": (
        lambda: changed(without_super(Retry), after=float("nan")),
        "retry",
    ),
    "retry, after is for ever": (
        lambda: changed(without_super(Retry), after=float("inf")),
        "retry",
    ),
    "retry, alone in a group": (lambda: ExceptionGroup("x", [Retry("x", after=7)]), "retry"),
    "defer, no super": (lambda: without_super(Defer), "defer"),
    "defer, after is nothing": (lambda: changed(without_super(Defer), after=0), "defer"),
    "defer, str raises": (lambda: changed(without_super(Defer), after=timedelta(0, 3)), "defer"),
    "throttled, no super": (lambda: without_super(Throttled), "defer"),
    "unavailable, no super": (lambda: without_super(Unavailable), "error"),
}


@task_type("odd.raises", max_retries=1, backoff=0.01)
def raises(context, *, name):
    make, _ = ODD[name]
    raise make()


@task_type("odd.in_a_task_group", max_retries=1)
async def in_a_task_group(context):
    async def refuse():
        raise Retry("later", after=7)

    async with asyncio.TaskGroup() as group:
        group.create_task(refuse())
        group.create_task(asyncio.sleep(60))


class Weight:
    """A large object; a weak reference shows whether anything keeps the object."""


weights = []


def weigh(context, *, size=0):
    """Hold a large object and raise an exception that is also in a local variable."""
    weight, big = Weight(), bytearray(size)
    weights.append(weakref.ref(weight))
    try:
        raise ValueError(len(big))
    except ValueError as error:
        kept = error
    raise kept


def make_weight():
    weight = Weight()
    weights.append(weakref.ref(weight))
    return weight


class HeavyError(ValueError):
    def __init__(self, weight):
        super().__init__("heavy")
        self.weight = weight


def weigh_by_exception(context):
    """Raise an exception that has the large object, with a cause that has another one."""
    try:
        raise HeavyError(make_weight())
    except HeavyError as error:
        raise HeavyError(make_weight()) from error


@task_type("odd.weighs.held")
def weighs_held(context):
    weigh_by_exception(context)


@task_type("odd.weighs.held.together", transactional=True)
def weighs_held_together(context):
    weigh_by_exception(context)


@task_type("odd.weighs.held.coroutine")
async def weighs_held_coroutine(context):
    weigh_by_exception(context)


@task_type("odd.weighs.held.group")
async def weighs_held_group(context):
    async with asyncio.TaskGroup() as group:
        group.create_task(weighs_held_coroutine.handler(context))


@task_type("odd.weighs.executed")
def weighs_executed(context):
    exec("weight = make_weight()\nraise ValueError('heavy')", {"make_weight": make_weight})


@task_type("odd.weighs.fatal")
def weighs_fatal(context):
    fatal = Fatal("heavy")
    fatal.weight = make_weight()
    raise fatal


@task_type("odd.weighs")
def weighs(context, *, size=0):
    weigh(context, size=size)


@task_type("odd.weighs.together", transactional=True)
def weighs_together(context, *, size=0):
    weigh(context, size=size)


@task_type("odd.weighs.coroutine")
async def weighs_coroutine(context, *, size=0):
    weigh(context, size=size)
