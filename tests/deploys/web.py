"""A web process of a release, which enqueues Instances of each of its Types.

``python -m tests.deploys.web COUNT`` prints a JSON object that maps each Type to a list of uuids.
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
