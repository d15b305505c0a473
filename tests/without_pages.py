"""URLs of a project that does not use the pages."""

urlpatterns = []
