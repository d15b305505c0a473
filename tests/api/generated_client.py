"""What a program does with the client that openapi-python-client has generated: a script.

``python generated_client.py FOLDER SERVER USER PASSWORD`` prints what it has seen, as JSON.
"""

import json
import sys

import httpx

sys.path.insert(0, sys.argv[1])

from generated.api.instances import (
    change,
    delete,
    enqueue,
    get_instance,
    get_response,
    list_instances,
)
from generated.client import Client
from generated.models import Change, Enqueue, EnqueueInputsType0, Instance

server, user, password = sys.argv[2:]
client = Client(
    base_url=server,
    httpx_args={"auth": httpx.BasicAuth(user, password)},
    timeout=httpx.Timeout(70),
    raise_on_unexpected_status=True,
)
seen = {}

by_name = EnqueueInputsType0.from_dict({"kind": "bytes", "size": 3})
first = enqueue.sync(client=client, body=Enqueue(type_="daemon.answer", inputs=by_name))
assert isinstance(first, Instance), first
more = enqueue.sync(
    client=client,
    body=[
        Enqueue(type_="tests.add", inputs=[1, 2], identifier="one"),
        Enqueue(type_="tests.add", inputs=[3, 4], run_after=3600.0),
    ],
)
seen["new"] = [each.is_new for each in (first, *more)]

ended = get_instance.sync(first.uuid, client=client, wait=60.0)
while ended.state != "FINISHED":
    assert ended.state in ("ACCEPTED", "SCHEDULED", "RUNNING"), ended
    ended = get_instance.sync(first.uuid, client=client, wait=60.0)
seen["state"] = ended.state
answer = get_response.sync(first.uuid, client=client)
seen["bytes"] = list(answer.payload.read())

changed = change.sync(more[1].uuid, client=client, body=Change(priority=7))
seen["priority"] = changed.priority
removed = delete.sync(more[1].uuid, client=client)
seen["removed"] = str(removed.uuid) == str(more[1].uuid)

uuids, key = [], {}
while True:
    page = list_instances.sync(client=client, limit=1, **key)
    uuids += [str(each.uuid) for each in page.results]
    if page.next_page is None:
        break
    key = {"page": page.next_page}
seen["pages"] = uuids == [str(more[0].uuid), str(first.uuid)]
print(json.dumps(seen))
