"""URLs of the demo."""

from django.contrib import admin
from django.contrib.auth.decorators import login_required
from django.contrib.auth.views import LoginView, LogoutView
from django.urls import include, path
from django.views.generic import RedirectView
from drf_spectacular.views import SpectacularJSONAPIView, SpectacularSwaggerSplitView

urlpatterns = [
    path("admin/", admin.site.urls),
    path("login/", LoginView.as_view(template_name="atp/login.html"), name="login"),
    path("logout/", LogoutView.as_view(), name="logout"),
    # The API comes before the pages, because their paths begin the same way.
    path("atp/api/", include("atp.api.urls")),
    path("atp/", include("atp.urls")),
    # The Types that are public, for clients of OGC API - Processes.
    path("ogc/", include("atp.ogc.urls")),
    # The API's schema for programs, and its documentation for people.
    path("api/schema", SpectacularJSONAPIView.as_view(), name="schema"),
    path("api/", login_required(SpectacularSwaggerSplitView.as_view()), name="api"),
    path("", RedirectView.as_view(pattern_name="atp:overview")),
]
