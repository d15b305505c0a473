"""Who may run processes, and whose jobs a client sees: each client has a lane."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from functools import cache
from typing import Any

from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.core.signals import setting_changed
from django.db.models import Q
from django.utils.module_loading import import_string
from rest_framework.exceptions import NotAuthenticated

from ..conf import settings
from ..exceptions import InvalidOption
from ..models import Instance
from ..options import check_text
from ..web import permissions
from ..web.permissions import VIEW_INSTANCE


def lane_of_user(request: Any) -> str | None:
    """Return ``user:NAME`` for a user who is logged in; None refuses everybody else."""
    user = request.user
    if user is None or not user.is_authenticated:
        return None
    return f"user:{user.get_username()}"


@cache
def _rule() -> Callable[[Any], str | None]:
    """Return the function that ``ATP["OGC_LANE"]`` names. Raises ImproperlyConfigured."""
    try:
        return import_string(settings.OGC_LANE)
    except ImportError as error:
        raise ImproperlyConfigured(
            f"ATP['OGC_LANE']: {settings.OGC_LANE!r} cannot be imported: {error}."
        ) from error


def _forget_rule(*, setting: str, **kwargs: Any) -> None:
    if setting == "ATP":
        _rule.cache_clear()


setting_changed.connect(_forget_rule)


def lane(request: Any) -> str:
    """Return the collection of the jobs of a request's client.

    Raises NotAuthenticated if the project's rule returns no collection.
    """
    found = _rule()(request)
    if not found:
        raise NotAuthenticated
    try:
        check_text("collection", found)
    except InvalidOption as error:
        raise ImproperlyConfigured(f"ATP['OGC_LANE'] returned {found!r}: {error}") from None
    return found


def has_lane(request: Any, collection: str) -> bool:
    """Return True if a collection is that of a request's client."""
    try:
        return lane(request) == collection
    except NotAuthenticated:
        return False


def is_operator(user: Any) -> bool:
    """Return True if a user may see jobs of others: all of them, or those that AUTHORIZE allows."""
    return user is not None and user.has_perm(VIEW_INSTANCE)


def sees_everything(user: Any) -> bool:
    """Return True if a user may see all Instances, and so may read sentences that name others."""
    return is_operator(user) and permissions.holds(user, VIEW_INSTANCE)


def may_see(request: Any, instance: Instance) -> bool:
    """Return True if a client may see a job: as its owner, or as an operator."""
    if not is_operator(request.user):
        return instance.collection == lane(request)
    is_allowed = permissions.allows(request.user, VIEW_INSTANCE, instance)
    return is_allowed or has_lane(request, instance.collection)


def visible_jobs(request: Any, types: Collection[int]) -> Any:
    """Return the jobs of Types, by primary keys, that a client may see, as :func:`may_see` does."""
    rows: Any = Instance.objects.using(settings.DATABASE)
    if not is_operator(request.user):
        return rows.filter(collection=lane(request), collection__gt="", type__in=types)
    grant = permissions.grant_of(request.user, VIEW_INSTANCE)
    if not grant.is_everything:
        visible = grant.lanes()
        with suppress(NotAuthenticated):
            visible |= Q(collection=lane(request))
        rows = rows.searched(visible)
    return rows.searched(Q(type__in=types))


def require(request: Any, instance: Instance, permission: str) -> None:
    """Raise PermissionDenied if a job is another's, and the operator lacks a permission for it."""
    if not has_lane(request, instance.collection):
        lacking = permissions.missing_permissions(request.user, [permission])
        if lacking:
            raise PermissionDenied(permissions.describe_missing(lacking))
        permissions.require(request.user, instance, permission)
