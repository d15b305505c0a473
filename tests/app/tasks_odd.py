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


# What makes each, by the outcome that its class stands for and by its name.
_MAKES = {
    "error": {
        "str raises": lambda: made(ValueError, __str__=raising()),
        "str exits": lambda: made(ValueError, __str__=raising(SystemExit)),
        "str returns None": lambda: made(ValueError, __str__=lambda self: None),
        "str returns odd text": lambda: made(ValueError, __str__=lambda self: Text("x")),
        "str recurses": lambda: Recursing("x"),
        "str is huge": lambda: ValueError("x" * 20_000_000),
        "an odd argument": lambda: ValueError(made(ValueError, __repr__=raising())),
        "surrogates": lambda: ValueError("\ud800\udfff"),
        "NULs": lambda: ValueError("a\0b\0"),
        "no words": ValueError,
        "everything raises": lambda: made(ValueError, __getattribute__=raising()),
        "notes raise": lambda: refusing(ValueError, "__notes__"),
        "notes are no text": lambda: changed(ValueError("x"), __notes__=[5, None, b"x"]),
        "notes are a number": lambda: changed(ValueError("x"), __notes__=5),
        "cause raises": lambda: refusing(ValueError, "__cause__"),
        "traceback raises": lambda: refusing(ValueError, "__traceback__"),
        "a lying cause": lambda: changed(ValueError("x"), __cause__=lying()),
        "causes in a ring": in_a_ring,
        "causes in a chain": in_a_chain,
        "class raises": lambda: refusing(ValueError, "__class__"),
        "class lies": lambda: made(ValueError, __class__=property(lambda self: Fatal)),
        "dict raises": lambda: refusing(ValueError, "__dict__"),
        "hash and eq raise": lambda: made(ValueError, __eq__=raising(), __hash__=raising()),
        "a lying metaclass": lying,
        "the module is a number": lambda: made(ValueError, __module__=5),
        "the module is odd": lambda: made(ValueError, __module__=Text("x\0\ud800")),
        "a long name": lambda: made(ValueError, __qualname__="O" * 100_000),
        "a syntax error": lambda: changed(
            SyntaxError("x"), filename=5, lineno="soon", text=b"\xff", offset=object()
        ),
        "an attribute error": of_a_name,
        "a decoding error": lambda: UnicodeDecodeError("x", b"y", -5, 10**9, "z"),
        "an OSError": lambda: OSError(10**6, made(ValueError, __str__=raising())),
        "a SystemExit": lambda: SystemExit(made(ValueError, __str__=raising())),
        "a cancellation": lambda: asyncio.CancelledError("x"),
        "a KeyboardInterrupt": KeyboardInterrupt,
        "a group": lambda: ExceptionGroup("x", [ValueError(1), lying()]),
        "a deep group": lambda: deep_group(ValueError("x")),
        "a group of many": lambda: ExceptionGroup("x", [ValueError(n) for n in range(5000)]),
        "a fatal one and another": lambda: ExceptionGroup("x", [Fatal("x"), Retry("y")]),
        "unavailable, no super": lambda: without_super(Unavailable),
    },
    "fatal": {
        "fatal, str raises": lambda: made(Fatal, __str__=raising()),
        "fatal, str recurses": lambda: RecursingFatal("x"),
        "fatal, no super": lambda: without_super(Fatal),
        "fatal, fingerprint raises": lambda: refusing(Fatal, "fingerprint"),
        "fatal, everything raises": lambda: made(Fatal, __getattribute__=raising()),
        "fatal, frozen": lambda: Frozen(5),
        "fatal, lying": lambda: lying(Fatal),
        "fatal, class lies": lambda: made(Fatal, __class__=property(lambda self: Retry)),
        "fatal, alone in groups": lambda: deep_group(Fatal("x"), 3),
    },
    "retry": {
        "retry, no super": lambda: without_super(Retry),
        "retry, after raises": lambda: refusing(Retry, "after"),
        "retry, after is text": lambda: changed(without_super(Retry), after="soon"),
        "retry, after is no number": lambda: changed(without_super(Retry), after=float("nan")),
        "retry, after is for ever": lambda: changed(without_super(Retry), after=float("inf")),
        "retry, alone in a group": lambda: ExceptionGroup("x", [Retry("x", after=7)]),
    },
    "defer": {
        "defer, no super": lambda: without_super(Defer),
        "defer, after is nothing": lambda: changed(without_super(Defer), after=0),
        "defer, str raises": lambda: changed(without_super(Defer), after=timedelta(0, 3)),
        "throttled, no super": lambda: without_super(Throttled),
    },
}
# The name of each, what makes it, the kind of the outcome that its class stands for.
ODD = {name: (make, kind) for kind, found in _MAKES.items() for name, make in found.items()}


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


for _suffix, _parameters in (("", {}), (".together", {"transactional": True})):
    task_type(f"odd.weighs{_suffix}", **_parameters)(weigh)
    task_type(f"odd.weighs.held{_suffix}", **_parameters)(weigh_by_exception)


@task_type("odd.weighs.coroutine")
async def weighs_coroutine(context, *, size=0):
    weigh(context, size=size)
