"""Middleware and context carriers that tests name in ``settings.ATP``."""

from contextlib import contextmanager
from contextvars import ContextVar

from asgiref.sync import iscoroutinefunction
from django.contrib.auth.models import Group
from django.core.exceptions import MiddlewareNotUsed
from django.utils.decorators import sync_and_async_middleware

import atp
from atp.middleware import Carrier

tenant = ContextVar("tenant", default=None)


class Tenant(Carrier):
    name = "tenant"

    def save(self):
        return tenant.get()

    @contextmanager
    def restore(self, value):
        if value == "closed":
            raise LookupError("there is no such tenant any more")
        token = tenant.set(value)
        yield
        tenant.reset(token)


class SameName(Tenant):
    pass


class Unnamed(Carrier):
    pass


class Unmade(Tenant):
    def __init__(self, needed):
        pass


NotAClass = Tenant()
# The layers of the onion, as they are entered and left; the tenant that each sees.
seen = []
made = []


def outer(run):
    made.append("outer")

    def layer(context):
        seen.append(("outer", tenant.get()))
        try:
            return run(context)
        finally:
            seen.append("left")

    return layer


class Inner:
    def __init__(self, run):
        self.run = run

    def __call__(self, context):
        seen.append(("inner", context.type))
        return {"wrapped": self.run(context)}


def writes(run):
    def layer(context):
        Group.objects.create(name=f"before {context.attempt}")
        return run(context)

    return layer


def raises(run):
    def layer(context):
        run(context)
        raise ValueError("of the middleware")

    return layer


def retries(run):
    def layer(context):
        raise atp.Retry("not now", after=1)

    return layer


def unused(run):
    raise MiddlewareNotUsed


def makes_nothing(run):
    return None


def makes_a_coroutine(run):
    async def layer(context):
        return run(context)

    return layer


async def is_a_coroutine(run):
    return run


@sync_and_async_middleware
def both(run):
    """Wrap plain functions and coroutine functions."""
    if iscoroutinefunction(run):

        async def layer(context):
            seen.append("both, awaited")
            return await run(context)
    else:

        def layer(context):
            seen.append("both, called")
            return run(context)

    return layer


@sync_and_async_middleware
def only_called(run):
    """Say that it wraps coroutine functions, and return a plain one."""
    return lambda context: run(context)
