"""The base of all pages: permissions, failures, headers, Content-Security-Policy; inputs and
responses as text or picture.
"""

from dataclasses import dataclass
from urllib.parse import urlsplit

from django.contrib.auth.mixins import AccessMixin
from django.contrib.auth.views import redirect_to_login
from django.contrib.messages import get_messages
from django.core.exceptions import BadRequest, PermissionDenied
from django.http import HttpResponse
from django.template.loader import render_to_string
from django.templatetags.static import static
from django.urls import NoReverseMatch, reverse
from django.utils.cache import patch_cache_control
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.csrf import csrf_protect
from django_htmx.middleware import HtmxDetails

from .. import queue
from .. import text as wording
from ..exceptions import UnknownInstance
from ..payload import codec
from ..reports import documents
from ..text import did_you_mean
from ..web import permissions, raw
from ..web.problems import Problem, problem_of

# The base of all pages: permissions, failures, headers.

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
)
# Statuses after which a live part of a page need not ask again.
_GONE = (400, 403, 404)


@method_decorator(csrf_protect, name="dispatch")
class Page(AccessMixin, View):
    """The base of a page. The user must be logged in and have its ``permissions``.

    An exception of a verb becomes a page with the problem. A request from htmx gets
    only the live part of the page.
    """

    permissions = ()
    # What the page is about, as soon as it is found.
    subject = None
    template_name = None
    # The names that the query string and a form may have; others are refused.
    parameters = ()
    fields = ()
    http_method_names = ("get", "head", "post", "options")

    def dispatch(self, request, *args, **kwargs):
        request.htmx = HtmxDetails(request)
        try:
            if not request.user.is_authenticated:
                return self._to_login()
            self.check_permissions(*self.permissions)
            self.check_names(request.GET, self.parameters, "parameter")
            self.check_names(request.POST, (*self.fields, "csrfmiddlewaretoken"), "field")
            answer = super().dispatch(request, *args, **kwargs)
        except Exception as error:
            answer = self._failed(error)
        return _guarded(answer)

    def check_permissions(self, *names):
        """Raise PermissionDenied, with the missing permissions, if the user lacks any of these."""
        lacking = permissions.lacking(self.request.user, names)
        if lacking:
            raise PermissionDenied(permissions.refusal(lacking))

    def look_up(self, model, name, find):
        """Return what ``find`` finds, if the page's permissions hold on it: its subject."""
        found = permissions.look_up(self.request.user, find, model, name, *self.permissions)
        self.subject = found
        return found

    def narrowed(self, rows, permission=None):
        """Return those rows on which a permission holds; by default that to see the page."""
        name = permission or self.permissions[0]
        return permissions.narrowed(self.request.user, name, rows)

    def seen(self, subjects, permission=None):
        """Return those of some subjects on which a permission holds, as :meth:`narrowed`."""
        name = permission or self.permissions[0]
        return [each for each in subjects if permissions.allows(self.request.user, name, each)]

    def check_touched(self, identifier, *names):
        """Raise PermissionDenied if one of the permissions holds on no lane of a Type."""
        for name in names:
            if not self.touches(identifier, name):
                raise PermissionDenied(f"The permission {name} does not hold here.")

    def touches(self, identifier, *names):
        """Return whether the permissions, each, hold on some lane of a Type."""
        scopes = [permissions.scope_of(self.request.user, name) for name in names]
        return all(scope.touches(identifier) for scope in scopes)

    def check_unrestricted(self):
        """Raise PermissionDenied unless the page's permissions hold on everything."""
        permissions.require(self.request.user, permissions.EVERYTHING, *self.permissions)

    @staticmethod
    def check_names(data, known, what):
        """Raise BadRequest for a name that the page does not have, or that is given twice."""
        for name, values in data.lists():
            if name not in known:
                hint = did_you_mean(name, known)
                raise BadRequest(f"The page has no {what} {name!r}.{hint}")
            if len(values) > 1:
                raise BadRequest(f"The {what} {name!r} is given more than once.")

    def may(self, *names):
        """Return whether the user has all of these permissions, on the subject if there is one."""
        user = self.request.user
        if self.subject is None:
            return not permissions.lacking(user, names)
        return all(permissions.holds(user, name, self.subject) for name in names)

    def show(self, *, status=200, template=None, **context):
        """Answer with the page, or only with its live part if htmx asks for it."""
        context |= {
            "menu": list(self._menu()),
            "username": self.request.user.get_username(),
            "may_enqueue": self.may(permissions.ENQUEUE),
            "may_control": self.may(permissions.CONTROL),
            "may_see_instances": self.may(permissions.VIEW_INSTANCE),
            "told": get_messages(self.request),
            "logout_url": _logout_url(),
            "zone": wording.zone(),
        }
        return self._rendered(template or self.template_name, context, status)

    def _menu(self):
        """Yield the entries of the menu: address, whether it is the current one, and text."""
        overview = reverse("atp:overview")
        for view, text, name in _MENU:
            if not permissions.lacking(self.request.user, [name]):
                address = reverse(view)
                is_current = address != overview and self.request.path.startswith(address)
                yield address, is_current, text

    def http_method_not_allowed(self, request, *args, **kwargs):
        allowed = self._allowed_methods()
        problem = Problem(
            status=405,
            name="method-not-allowed",
            title="This cannot be done here",
            detail=f"The page takes {', '.join(allowed)}, not {request.method}.",
        )
        answer = self.show(status=405, template="atp/problem.html", problem=problem)
        answer.headers["Allow"] = ", ".join(allowed)
        return answer

    def page_to_return_to(self):
        """Return the address of the page to show after a login."""
        return self.request.path

    def _rendered(self, template, context, status):
        context |= {
            "request": self.request,
            "base": "atp/live.html" if self.request.htmx else "atp/base.html",
        }
        text = render_to_string(template, context, self.request)
        # JSON may hold lone surrogates, which UTF-8 cannot encode.
        return HttpResponse(text.encode(errors="backslashreplace"), status=status)

    def _failed(self, error):
        problem = problem_of(error)
        if problem is None:
            raise error
        if self.request.htmx:
            # If asking again is no use, reload the page, which says why. Else the old part stays.
            headers = {"HX-Refresh": "true"} if problem.status in _GONE else {}
            return HttpResponse(status=problem.status, headers=headers)
        if problem.status == 503:
            # Without the database the user is not known either.
            return self._rendered("atp/problem.html", {"problem": problem}, problem.status)
        return self.show(
            status=problem.status,
            template="atp/problem.html",
            problem=problem,
            concerned=self._instance_concerned(),
        )

    def _instance_concerned(self):
        """Return the uuid of the Instance whose subpage this is, None if this is no such page."""
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

    def _to_login(self):
        if self.request.htmx:
            # A login form does not fit into a part of a page: reload the page.
            return HttpResponse(status=401, headers={"HX-Refresh": "true"})
        if self.request.method in ("GET", "HEAD"):
            return self.handle_no_permission()
        # The login does not repeat a POST: lead to the page that has the form.
        return redirect_to_login(self.page_to_return_to())


def _logout_url():
    """Return the URL named "logout" or "admin:logout"; None if the project has neither."""
    for name in ("logout", "admin:logout"):
        try:
            return reverse(name)
        except NoReverseMatch:
            continue
    return None


def _guarded(answer):
    """Add the security headers that the view has not set itself."""
    answer.headers.setdefault("Content-Security-Policy", policy())
    answer.headers.setdefault("X-Content-Type-Options", "nosniff")
    answer.headers.setdefault("Referrer-Policy", "same-origin")
    patch_cache_control(answer, private=True, no_store=True)
    return answer


# Inputs and responses on a page: as text or as a picture, never as HTML (G14).

# Characters of a text that a page shows; the rest is behind a link.
SHOWN = 20_000


@dataclass(frozen=True, kw_only=True)
class ShownFile:
    """A published file; ``is_picture`` says whether the page may show it."""

    name: str
    content_type: str
    size: int
    attempt: int
    is_picture: bool


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A body on a page: a text, which may be cut; a picture; or only its type and size."""

    content_type: str = ""
    size: int = 0
    text: str | None = None
    is_cut: bool = False
    is_picture: bool = False
    files: tuple[ShownFile, ...] = ()


def shown_inputs(inputs):
    """Return Inputs as a page shows them; a pickle is never opened."""
    if inputs is None:
        return None
    if inputs.format != codec.JSON:
        return Shown(content_type=f"signed {inputs.format}")
    text = wording.indented(documents.shown_data(inputs))
    return Shown(content_type="application/json", text=text[:SHOWN], is_cut=len(text) > SHOWN)


def shown_response(response):
    """Return a Response as a page shows it; None if it has no output and no file."""
    if response is None or not (response.content_type or response.files):
        return None
    text = _text(response)
    return Shown(
        content_type=response.content_type,
        size=response.size,
        text=None if text is None else text[:SHOWN],
        is_cut=text is not None and len(text) > SHOWN,
        is_picture=raw.is_picture(response.content_type),
        files=tuple(_shown_file(entry) for entry in documents.files(response)),
    )


def _text(response):
    """Return the output as text; None if it is not text, or is stored in a file."""
    kind = raw.media_type(response.content_type)
    if response.data is None or not (
        kind in ("application/json", "image/svg+xml") or kind.startswith("text/")
    ):
        return None
    text = bytes(response.data).decode(errors="replace")
    return wording.indented(text) if kind == "application/json" else text


def _shown_file(entry):
    return ShownFile(
        name=entry["name"],
        content_type=entry["content_type"],
        size=entry["size"],
        attempt=entry["attempt"],
        is_picture=raw.is_picture(entry["content_type"]),
    )


# The Content-Security-Policy of the pages: scripts and styles come from files, never inline.

_POLICY = (
    "default-src 'none'; script-src {static}; style-src {static}; img-src {static}; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


def policy():
    """Return the policy, which allows the server of the static files too."""
    parts = urlsplit(static("atp/atp.css"))
    origin = f" {parts.scheme or 'https'}://{parts.netloc}" if parts.netloc else ""
    return _POLICY.format(static=f"'self'{origin}")


def policy_in_page():
    """Return the policy as a page can contain it: who may frame a page, only a header can say."""
    return policy().replace("; frame-ancestors 'none'", "")
