"""What all pages share: who may see them, how they fail, and the headers they go out with."""

from django.contrib.auth.views import redirect_to_login
from django.contrib.messages import get_messages
from django.core.exceptions import BadRequest, PermissionDenied
from django.http import HttpResponse
from django.shortcuts import render
from django.urls import NoReverseMatch, reverse
from django.utils.cache import patch_cache_control
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.csrf import csrf_protect
from django_htmx.middleware import HtmxDetails

from ..conf import did_you_mean
from ..web import permissions
from ..web.problems import Problem, problem_of
from .csp import policy

_MENU = (
    ("atp:overview", "Overview", permissions.VIEW_INSTANCE),
    ("atp:instances", "Instances", permissions.VIEW_INSTANCE),
    ("atp:types", "Types", permissions.VIEW_TYPE),
    ("atp:daemons", "Daemons", permissions.VIEW_DAEMON),
)

# Statuses after which asking again is no use.
_GONE = (403, 404)


@method_decorator(csrf_protect, name="dispatch")
class Page(View):
    """A page for whoever is logged in and has its ``permissions``.

    What a verb raises becomes a page that says what is wrong. A request from
    htmx, which comes for the live part of a page, gets just that.
    """

    permissions = ()
    template_name = None
    # Names that may stand in the query string; others are refused.
    parameters = ()
    http_method_names = ("get", "head", "post", "options")

    def dispatch(self, request, *args, **kwargs):
        request.htmx = HtmxDetails(request)
        if not request.user.is_authenticated:
            return self._to_login(request)
        try:
            self.check_permissions(*self.permissions)
            self.check_parameters()
            answer = super().dispatch(request, *args, **kwargs)
        except Exception as error:
            answer = self._failed(error)
        return _guarded(answer)

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

    def check_permissions(self, *names):
        """Raises PermissionDenied, which names those that are lacking."""
        lacking = permissions.lacking(self.request.user, names)
        if lacking:
            raise PermissionDenied(permissions.refusal(lacking))

    def check_parameters(self):
        """Raises BadRequest for a parameter that the page does not have."""
        for name in self.request.GET:
            if name not in self.parameters:
                hint = did_you_mean(name, self.parameters)
                raise BadRequest(f"The page has no parameter {name!r}.{hint}")

    def show(self, *, status=200, template=None, **context):
        """Answer with the page, or with its live part if that is what was asked for."""
        user = self.request.user
        context |= {
            "base": "atp/live.html" if self.request.htmx else "atp/base.html",
            "menu": [(view, text) for view, text, name in _MENU if user.has_perm(name)],
            "may_operate": user.has_perm(permissions.OPERATE),
            "told": get_messages(self.request),
            "logout_url": _logout_url(),
        }
        return render(self.request, template or self.template_name, context, status=status)

    def _failed(self, error):
        problem = problem_of(error)
        if problem is None:
            raise error
        if self.request.htmx:
            # Where it cannot come back the page says why; else what is there stays, and asks again.
            headers = {"HX-Refresh": "true"} if problem.status in _GONE else {}
            return HttpResponse(status=problem.status, headers=headers)
        return self.show(status=problem.status, template="atp/problem.html", problem=problem)

    @staticmethod
    def _to_login(request):
        if request.htmx:
            # A login form has no place inside a page: load that anew.
            return HttpResponse(status=401, headers={"HX-Refresh": "true"})
        return redirect_to_login(request.get_full_path())


def _logout_url():
    """Where the project logs people out, by Django's own names; None if it does not."""
    for name in ("logout", "admin:logout"):
        try:
            return reverse(name)
        except NoReverseMatch:
            continue
    return None


def _guarded(answer):
    """Add the headers, unless a view has set its own."""
    answer.headers.setdefault("Content-Security-Policy", policy())
    answer.headers.setdefault("X-Content-Type-Options", "nosniff")
    answer.headers.setdefault("Referrer-Policy", "same-origin")
    patch_cache_control(answer, private=True, no_store=True)
    return answer
