"""The small project has no pages."""

urlpatterns = []
