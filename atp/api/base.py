"""What all views of the API share: who may call them, what they take, and how they fail.

The project's settings of REST framework decide about logins and throttling,
and about nothing else.
"""

import re

from django.urls import reverse
from django.utils.cache import patch_cache_control
from rest_framework.exceptions import AuthenticationFailed, NotAuthenticated
from rest_framework.response import Response
from rest_framework.views import APIView

from .. import documents, paging, queue, waiting
from ..exceptions import UnknownInstance
from ..web import permissions
from ..web.actions import allowed
from .media import JSONParser, JSONRenderer, Negotiation
from .operation import DEFAULT_LIMIT
from .problems import PARAMETER, handler, wrong
from .schema import Schema

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII | re.IGNORECASE)


def is_uuid(text):
    """Whether text from a URL is a uuid in the one form that the API gives."""
    return _UUID.fullmatch(text) is not None


class View(APIView):
    """An address of the API, with an :class:`Operation` for each method."""

    operations = {}
    path_parameters = ()
    # What it stands under in the schema.
    tag = "instances"

    http_method_names = ("get", "head", "post", "delete")
    renderer_classes = (JSONRenderer,)
    parser_classes = (JSONParser,)
    permission_classes = ()
    content_negotiation_class = Negotiation
    versioning_class = None
    metadata_class = None
    schema = Schema()

    @property
    def operation(self):
        """The Operation that is asked for; None if there is none of this method."""
        method = self.request.method
        return self.operations.get("GET" if method == "HEAD" else method)

    def initial(self, request, *args, **kwargs):
        super().initial(request, *args, **kwargs)
        if self.operation is not None:
            self.query, errors = self.operation.read(request.query_params)
            if errors:
                raise wrong(PARAMETER, errors)

    def perform_authentication(self, request):
        try:
            super().perform_authentication(request)
        except ValueError:  # from the database, which does not take every text
            raise AuthenticationFailed("The login cannot be read.") from None

    def check_permissions(self, request):
        user = request.user
        if user is None or not user.is_authenticated:
            raise NotAuthenticated
        self.require(*(self.operation.permissions if self.operation else ()))

    def require(self, *names):
        """Raises PermissionDenied, which names the permissions that are lacking."""
        lacking = permissions.lacking(self.request.user, names)
        if lacking:
            self.permission_denied(self.request, message=permissions.refusal(lacking))

    def get_authenticate_header(self, request):
        """Return the first challenge that there is, so that whoever can log in is told how."""
        challenges = (way.authenticate_header(request) for way in self.get_authenticators())
        return next(filter(None, challenges), None)

    def get_exception_handler(self):
        return handler

    def get_format_suffix(self, **kwargs):
        return None

    def finalize_response(self, request, response, *args, **kwargs):
        answer = super().finalize_response(request, response, *args, **kwargs)
        answer.headers.setdefault("X-Content-Type-Options", "nosniff")
        patch_cache_control(answer, private=True, no_store=True)
        return answer

    # What several views present

    def url(self, name, *args):
        """Return the absolute address of a view of the API."""
        namespace = self.request.resolver_match.namespace
        return self.request.build_absolute_uri(reverse(f"{namespace}:{name}", args=args))

    def instance_of(self, uuid):
        """Return the Instance of a uuid as it stands in a URL. Raises UnknownInstance."""
        if not is_uuid(uuid):
            raise UnknownInstance(f"{uuid!r} is not a uuid, so there is no such Instance.")
        return queue.get(uuid)

    def document_of(self, instance, task=None):
        """Return what is told of an Instance; with its Task, also by what has been asked."""
        return documents.instance(instance) | {
            "actions": [action.name for action in allowed(instance, task)],
            "url": self.url("instance", instance.uuid),
        }

    def detail_of(self, instance):
        """Return all that is told of one Instance: also why it waits, if it does."""
        task = queue.task(instance)
        told = self.document_of(instance, task)
        return told | {"waits_for": list(waiting.why(instance, task))}

    def page(self, rows, order, document):
        """Answer with a page of a list, each row by ``document``."""
        limit = self.query.get("limit", DEFAULT_LIMIT)
        page = paging.page(rows, order, size=limit, key=self.query.get("page"))
        return Response(
            {
                "next": self._page_url(page.next),
                "previous": self._page_url(page.previous),
                "results": [document(row) for row in page.rows],
            }
        )

    def whole(self, results):
        """Answer with a list that is never long enough for pages."""
        return Response({"next": None, "previous": None, "results": results})

    def _page_url(self, key):
        if key is None:
            return None
        query = self.request.query_params.copy()
        query["page"] = key
        return self.request.build_absolute_uri(f"{self.request.path}?{query.urlencode()}")
