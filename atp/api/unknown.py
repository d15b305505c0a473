"""Addresses that there are not."""

from django.http import Http404

from ..conf import did_you_mean
from .base import View


class UnknownView(View):
    """Says so for every path that is no other view's."""

    schema = None
    known = ()

    @property
    def default_response_headers(self):
        return {}

    def http_method_not_allowed(self, request, *args, **kwargs):
        path = kwargs["path"]
        hint = did_you_mean(path.rstrip("/"), self.known)
        raise Http404(f"The API has no address {path!r}.{hint}")
