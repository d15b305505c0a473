"""A web process of a release: enqueues so many of each of its Types, and prints their uuids.

``python -m tests.deploys.web COUNT`` prints a JSON object of lists, by Type.
"""

import json
import sys

import django


def main(count):
    django.setup()
    from shop.tasks import CALLS

    found = {
        str(task_type): [str(task_type.enqueue(**inputs).uuid) for _ in range(count)]
        for task_type, inputs in CALLS.items()
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]))
