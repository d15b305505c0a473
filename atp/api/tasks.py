"""The queue: Tasks of each lane in the order in which they are claimed."""

from .. import documents
from ..conf import settings
from ..models import Task
from ..querysets import LANES_ORDER
from ..web import permissions
from ..web.filters import TaskFilter, selected
from .base import View
from .filtering import parameters
from .operation import LIMIT, PAGE, Answer, Operation
from .serializers import TaskSerializer, page_of


class TasksView(View):
    tag = "tasks"
    operations = {
        "GET": Operation(
            id="list_tasks",
            summary="The queue: what waits, lane by lane in claiming order",
            description="With `claimed=true` what daemons hold instead.",
            permissions=(permissions.VIEW_TASK,),
            parameters=(*parameters(TaskFilter), PAGE, LIMIT),
            answers={200: Answer(description="Tasks.", serializer=page_of(TaskSerializer))},
        )
    }

    def get(self, request):
        rows = Task.objects.using(settings.DATABASE).select_related("instance", "type", "daemon")
        chosen = selected(TaskFilter, request.query_params, rows, others=("page", "limit"))
        return self.page(chosen.qs, LANES_ORDER, documents.queued_task)
