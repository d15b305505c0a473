"""URLs of the tests."""

from django.contrib import admin
from django.contrib.auth.views import LoginView, LogoutView
from django.urls import include, path

urlpatterns = [
    path("admin/", admin.site.urls),
    path("login/", LoginView.as_view(template_name="atp/login.html"), name="login"),
    path("logout/", LogoutView.as_view(), name="logout"),
    path("atp/api/", include("atp.api.urls")),
    path("atp/", include("atp.urls")),
    path("ogc/", include("atp.ogc.urls")),
]
