"""The base class of all pages, which handles permissions, errors and security headers.

This module also keeps what all viewers see, and prepares inputs and responses of Instances for
display, as text or as pictures.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass
from math import inf
from threading import Lock
from time import monotonic
from typing import Any, TypeVar
from urllib.parse import urlsplit

from django.contrib.auth.mixins import AccessMixin
from django.contrib.auth.views import redirect_to_login
from django.contrib.messages import get_messages
from django.core.exceptions import BadRequest, PermissionDenied
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, QueryDict
from django.http.response import HttpResponseBase
from django.template.loader import render_to_string
from django.templatetags.static import static
from django.urls import NoReverseMatch, reverse
from django.utils.cache import patch_cache_control
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.csrf import csrf_protect
from django_htmx.middleware import HtmxDetails

from .. import queue, text
from ..exceptions import UnknownInstance
from ..models import Inputs, Response, Schedule
from ..payload import codec
from ..reports import documents
from ..web import permissions, raw
from ..web.problems import Problem, problem_of

Found = TypeVar("Found")

_MENU = (
    ("atp:overview", "Overview", permissions.VIEW_INSTANCE),
    ("atp:instances", "Instances", permissions.VIEW_INSTANCE),
    ("atp:failures", "Failures", permissions.VIEW_ERROR),
    ("atp:types", "Types", permissions.VIEW_TYPE),
    ("atp:schedules", "Schedules", permissions.VIEW_SCHEDULE),
    ("atp:tailers", "Tailers", permissions.VIEW_TAILER),
    ("atp:graphs", "Graphs", permissions.VIEW_GRAPH),
    ("atp:downstreams", "Downstreams", permissions.VIEW_DOWNSTREAM),
    ("atp:daemons", "Daemons", permissions.VIEW_DAEMON),
    ("atp:activity", "Activity", permissions.VIEW_LOG),
)
# After these statuses a live part of a page does not refresh any more.
_FINAL_STATUSES = (400, 403, 404)
# The pages load scripts and styles from files, never inline.
_POLICY = (
    "default-src 'none'; script-src {static}; style-src {static}; img-src {static}; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
# The most characters of a text that a page shows; the rest is behind a link.
MAX_TEXT_SHOWN = 20_000
# All viewers of a process see the same values for so many seconds.
KEPT_FOR = 5.0
# Values that change slowly are kept for so many times as long, at most.
LONGEST_KEPT = 6


class Shared:
    """Keeps for KEPT_FOR what all viewers see, so that many open pages cost as little as one.

    One thread of a process computes a value; others that need the same value wait for it. A value
    that takes long, for example because of a lock in the database, delays no other value.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._computing: dict[Hashable, Lock] = {}
        self._kept: dict[Hashable, tuple[float, Any]] = {}

    def get(
        self,
        key: Hashable,
        compute: Callable[[], Found],
        *,
        fresh: bool = False,
        times: float = 1,
    ) -> Found:
        """Return what is kept under a key, or compute it if it is too old or ``fresh`` is True.

        The value is kept for ``times`` KEPT_FOR, at most for LONGEST_KEPT KEPT_FOR.
        """
        with self._lock:
            own = self._computing.setdefault(key, Lock())
        with own:
            time, kept = self._kept.get(key, (-inf, None))
            if fresh or monotonic() - time > times * KEPT_FOR:
                kept, now = compute(), monotonic()
                with self._lock:
                    young = {
                        name: old
                        for name, old in self._kept.items()
                        if now - old[0] <= LONGEST_KEPT * KEPT_FOR
                    }
                    self._kept = young | {key: (now, kept)}
                    self._computing = {
                        name: lock
                        for name, lock in self._computing.items()
                        if lock.locked() or name in self._kept
                    }
            return kept

    def clear(self) -> None:
        """Forget everything that is kept."""
        with self._lock:
            self._kept = {}


shared = Shared()


def query_without_page(request: HttpRequest, *, keep: Collection[str] = ()) -> str:
    """Return the query string with all filters that are set, for links that append a page.

    Filters whose names are in ``keep`` stay even if they are empty.
    """
    query = request.GET.copy()
    query.pop("page", None)
    for name in [name for name in query if not query[name] and name not in keep]:
        del query[name]
    return f"{query.urlencode()}&" if query else ""


class PageRequest(HttpRequest):
    """A request for a page. Its attribute ``htmx`` says whether htmx has sent the request."""

    htmx: HtmxDetails


@method_decorator(csrf_protect, name="dispatch")
class Page(AccessMixin, View):
    """The base class of a page. Users must be logged in and have the page's ``permissions``.

    If an operation raises an exception, the page shows the problem. A request from htmx gets only
    the live part of the page.
    """

    request: PageRequest
    permissions: tuple[str, ...] = ()
    # The object that the page shows, as soon as it is found.
    subject: Any = None
    template_name = ""
    # The names that the query string and a form may have; a page rejects all others.
    parameters: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    http_method_names: Any = ("get", "head", "post", "options")

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        self.request.htmx = HtmxDetails(request)
        try:
            if not request.user.is_authenticated:
                return self._redirect_to_login()
            self.check_permissions(*self.permissions)
            self.check_names(request.GET, self.parameters, "parameter")
            self.check_names(request.POST, (*self.fields, "csrfmiddlewaretoken"), "field")
            answer = super().dispatch(request, *args, **kwargs)
        except Exception as error:
            answer = self._answer_error(error)
        return _add_security_headers(answer)

    def check_permissions(self, *names: str) -> None:
        """Raise PermissionDenied, with the missing permissions, if the user lacks any of them."""
        lacking = permissions.missing_permissions(self.request.user, names)
        if lacking:
            raise PermissionDenied(permissions.describe_missing(lacking))

    def look_up(self, model: type[Model], name: object, find: Callable[[], Found]) -> Found:
        """Return the object that ``find`` returns, and store it as the page's ``subject``.

        Raises an error if one of the page's permissions does not apply to the object.
        """
        found = permissions.look_up(self.request.user, find, model, name, *self.permissions)
        self.subject = found
        return found

    def narrow_rows(self, rows: QuerySet[Any], permission: str | None = None) -> QuerySet[Any]:
        """Return the rows that a permission covers; by default, the permission for this page."""
        name = permission or self.permissions[0]
        return permissions.narrow_rows(self.request.user, name, rows)

    def filter_permitted(
        self, subjects: Iterable[Found], permission: str | None = None
    ) -> list[Found]:
        """Return the objects to which a permission applies; by default, that for the page."""
        name = permission or self.permissions[0]
        return [each for each in subjects if permissions.allows(self.request.user, name, each)]

    def check_touches(self, identifier: str, *names: str) -> None:
        """Raise PermissionDenied unless each permission applies to some lane of a Type."""
        for name in names:
            if not self.touches(identifier, name):
                raise PermissionDenied(f"Your permission {name} does not apply here.")

    def touches(self, identifier: str, *names: str) -> bool:
        """Return True if each of the permissions applies to some lane of a Type."""
        grants = [permissions.grant_of(self.request.user, name) for name in names]
        return all(grant.touches(identifier) for grant in grants)

    def check_unrestricted(self) -> None:
        """Raise PermissionDenied if a permission of the page is restricted to Types or lanes."""
        permissions.require(self.request.user, permissions.EVERYTHING, *self.permissions)

    @staticmethod
    def check_names(data: QueryDict, known: tuple[str, ...], what: str) -> None:
        """Raise BadRequest if ``data`` has a name that is not in ``known``, or a name twice."""
        for name, values in data.lists():
            if name not in known:
                hint = text.did_you_mean(name, known)
                raise BadRequest(f"The page has no {what} {name!r}.{hint}")
            if len(values) > 1:
                raise BadRequest(f"The {what} {name!r} is given more than once.")

    def may(self, *names: str) -> bool:
        """Return True if the user has all these permissions, for the subject if there is one."""
        user = self.request.user
        if self.subject is None:
            return not permissions.missing_permissions(user, names)
        return all(permissions.holds(user, name, self.subject) for name in names)

    @property
    def wants_news(self) -> bool:
        """True if the user has just done something, and wants to see what it has changed."""
        return not self.request.htmx and len(get_messages(self.request)) > 0

    def show(
        self, *, status: int = 200, template: str | None = None, **context: Any
    ) -> HttpResponse:
        """Return the response with the page, or with only its live part for a request by htmx."""
        context |= {
            "menu": list(self._menu()),
            "username": self.request.user.get_username(),
            "may_enqueue": self.may(permissions.ENQUEUE),
            "may_control": self.may(permissions.CONTROL),
            "may_see_instances": self.may(permissions.VIEW_INSTANCE),
            "told": get_messages(self.request),
            "logout_url": _logout_url(),
            "zone": text.time_zone_name(),
        }
        return self._render(template or self.template_name, context, status)

    def _menu(self) -> Iterator[tuple[str, bool, str]]:
        """Yield the menu's entries: the address, True for the current page, and the label."""
        overview = reverse("atp:overview")
        for view, label, name in _MENU:
            if not permissions.missing_permissions(self.request.user, [name]):
                address = reverse(view)
                is_current = address != overview and self.request.path.startswith(address)
                yield address, is_current, label

    def http_method_not_allowed(
        self, request: HttpRequest, *args: Any, **kwargs: Any
    ) -> HttpResponse:
        allowed = self._allowed_methods()  # type: ignore[attr-defined]
        problem = Problem(
            status=405,
            name="method-not-allowed",
            title="This cannot be done here",
            detail=f"The page takes {', '.join(allowed)}, not {request.method}.",
        )
        answer = self.show(status=405, template="atp/problem.html", problem=problem)
        answer.headers["Allow"] = ", ".join(allowed)
        return answer

    def page_to_return_to(self) -> str:
        """Return the address of the page that the user sees next, for example after a login."""
        return self.request.path

    def _render(self, template: str, context: dict[str, Any], status: int) -> HttpResponse:
        context |= {
            "request": self.request,
            "base": "atp/live.html" if self.request.htmx else "atp/base.html",
        }
        html = render_to_string(template, context, self.request)
        # JSON may hold lone surrogates, which UTF-8 cannot encode.
        return HttpResponse(html.encode(errors="backslashreplace"), status=status)

    def _answer_error(self, error: Exception) -> HttpResponseBase:
        problem = problem_of(error)
        if problem is None:
            raise error
        if self.request.htmx:
            # After a final status the page reloads and shows the problem. Otherwise the old part
            # stays.
            headers = {"HX-Refresh": "true"} if problem.status in _FINAL_STATUSES else {}
            return HttpResponse(status=problem.status, headers=headers)
        if problem.status == 503:
            # Without the database the user is unknown too.
            return self._render("atp/problem.html", {"problem": problem}, problem.status)
        return self.show(
            status=problem.status,
            template="atp/problem.html",
            problem=problem,
            concerned=self._instance_concerned(),
        )

    def _instance_concerned(self) -> Any:
        """Return an Instance's uuid if this is one of its subpages, or None.

        Return None also if the user may not see the Instance.
        """
        uuid = self.kwargs.get("uuid")
        if uuid is None or not self.may(permissions.VIEW_INSTANCE):
            return None
        address = reverse("atp:instance", kwargs={"uuid": uuid})
        if self.request.path == address or not self.request.path.startswith(address):
            return None
        try:
            found = queue.get(uuid)
        except UnknownInstance:
            return None
        is_seen = permissions.allows(self.request.user, permissions.VIEW_INSTANCE, found)
        return found.uuid if is_seen else None

    def _redirect_to_login(self) -> HttpResponseBase:
        if self.request.htmx:
            # Reload the whole page, because a login form does not fit into a part of a page.
            return HttpResponse(status=401, headers={"HX-Refresh": "true"})
        if self.request.method in ("GET", "HEAD"):
            return self.handle_no_permission()
        # The login cannot repeat a POST, so lead the user to the page with the form.
        return redirect_to_login(self.page_to_return_to())


def _logout_url() -> str | None:
    """Return the URL named "logout" or "admin:logout", or None if the project has neither."""
    for name in ("logout", "admin:logout"):
        try:
            return reverse(name)
        except NoReverseMatch:
            continue
    return None


def _add_security_headers(answer: HttpResponseBase) -> HttpResponseBase:
    """Add those security headers to a response that the view has not set itself."""
    answer.headers.setdefault("Content-Security-Policy", content_security_policy())
    answer.headers.setdefault("X-Content-Type-Options", "nosniff")
    answer.headers.setdefault("Referrer-Policy", "same-origin")
    patch_cache_control(answer, private=True, no_store=True)
    return answer


def content_security_policy() -> str:
    """Return the Content-Security-Policy, which also allows the host of the static files."""
    parts = urlsplit(static("atp/atp.css"))
    origin = f" {parts.scheme or 'https'}://{parts.netloc}" if parts.netloc else ""
    return _POLICY.format(static=f"'self'{origin}")


def content_security_policy_in_page() -> str:
    """Return the Content-Security-Policy for a ``<meta>`` element.

    The policy lacks ``frame-ancestors``, which browsers accept only in a header.
    """
    return content_security_policy().replace("; frame-ancestors 'none'", "")


# Inputs and responses on a page: as text or as a picture, never as HTML (G14).


@dataclass(frozen=True, kw_only=True)
class FileOnPage:
    """A published file, as a page shows it: as a picture if ``is_picture`` is True."""

    name: str
    content_type: str
    size: int
    attempt: int
    is_picture: bool


@dataclass(frozen=True, kw_only=True)
class BodyOnPage:
    """Inputs or a response, as a page shows them.

    The page shows text, which may be cut, or a picture, or only the content type and the size.
    """

    content_type: str = ""
    size: int = 0
    text: str | None = None
    is_cut: bool = False
    is_picture: bool = False
    files: tuple[FileOnPage, ...] = ()


def show_inputs(inputs: Inputs | Schedule | None) -> BodyOnPage | None:
    """Return stored inputs as a page shows them, or None without inputs. No pickle is opened."""
    if inputs is None:
        return None
    if inputs.format != codec.JSON:
        return BodyOnPage(content_type=f"signed {inputs.format}")
    body = text.indented(documents.masked_data(inputs))
    return BodyOnPage(
        content_type="application/json",
        text=body[:MAX_TEXT_SHOWN],
        is_cut=len(body) > MAX_TEXT_SHOWN,
    )


def show_response(response: Response | None) -> BodyOnPage | None:
    """Return a Response as a page shows it, or None if it has neither output nor files."""
    if response is None or not (response.content_type or response.files):
        return None
    body = _output_text(response)
    return BodyOnPage(
        content_type=response.content_type,
        size=response.size,
        text=None if body is None else body[:MAX_TEXT_SHOWN],
        is_cut=body is not None and len(body) > MAX_TEXT_SHOWN,
        is_picture=raw.is_picture(response.content_type),
        files=tuple(_show_file(entry) for entry in documents.files(response)),
    )


def _output_text(response: Response) -> str | None:
    """Return a Response's output as text, or None if it is not text or is stored in a file."""
    kind = raw.media_type(response.content_type)
    if response.data is None or not (
        kind in ("application/json", "image/svg+xml") or kind.startswith("text/")
    ):
        return None
    body = bytes(response.data).decode(errors="replace")
    return text.indented(body) if kind == "application/json" else body


def _show_file(entry: dict[str, Any]) -> FileOnPage:
    return FileOnPage(
        name=entry["name"],
        content_type=entry["content_type"],
        size=entry["size"],
        attempt=entry["attempt"],
        is_picture=raw.is_picture(entry["content_type"]),
    )
