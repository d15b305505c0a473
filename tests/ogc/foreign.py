"""Runs one client of other makers against a service: ``python foreign.py CLIENT URL``.

The client's own environment runs this, so nothing of this project is imported. It lists and
describes the processes, executes one, waits for its end by polling, reads the results, and
dismisses the job. It prints what the client has understood, as JSON.
"""

import json
import sys
import time

PROCESS = "ogc.relief"
INPUTS = {"bbox": [7.0, 46.0, 8.0, 47.5], "day": "2030-02-01"}
OUTPUTS = {"height": {}, "relief": {}}


def polled(status):
    """Return the status that a call returns, when it is that of a job that has ended."""
    deadline = time.monotonic() + 120
    while (found := status()) in ("accepted", "running"):
        if time.monotonic() > deadline:
            raise TimeoutError(f"The job is {found} after 120 s.")
        time.sleep(0.1)
    return found


def plain(status):
    """Return a status, which some clients have as an enumeration, as text."""
    return str(getattr(status, "value", status))


def owslib(url):
    import requests
    from owslib.ogcapi.processes import Processes

    service = Processes(f"{url}/")
    job = service.execute(PROCESS, INPUTS, async_=True)
    [monitor] = [each["href"] for each in job["links"] if each["rel"] == "monitor"]
    found = {
        "processes": [each["id"] for each in service.processes()],
        "inputs": list(service.process(PROCESS)["inputs"]),
        "status": polled(lambda: requests.get(monitor, timeout=30).json()["status"]),
        "results": requests.get(f"{monitor}/results", timeout=30).json(),
    }
    return found | {"dismissed": requests.delete(monitor, timeout=30).json()["status"]}


def ogc_api_processes_client(url):
    from ogc_api_processes_client import Configuration
    from ogc_api_processes_client.api_client_wrapper import ApiClientWrapper

    client = ApiClientWrapper(configuration=Configuration(host=url))
    listed = client.get_processes()
    described = client.get_process_description(PROCESS)
    job = client.execute_simple(PROCESS, {"inputs": INPUTS, "outputs": OUTPUTS}).job_id
    found = {
        "processes": [each.id for each in listed.processes],
        "inputs": list(described.inputs),
        "status": polled(lambda: plain(client.get_status(job).status)),
        "results": {
            name: value.to_dict() if hasattr(value, "to_dict") else value
            for name, value in client.get_result(job).items()
        },
        "jobs": [each.job_id for each in client.get_jobs().jobs] == [job],
    }
    return found | {"dismissed": plain(client.dismiss(job).status)}


def cuiman(url):
    from cuiman import Client
    from gavicore.models import ProcessRequest

    client = Client(api_url=url)
    listed, described = client.get_processes(), client.get_process(PROCESS)
    request = ProcessRequest(inputs=INPUTS, outputs=OUTPUTS)
    job = client.execute_process(PROCESS, request).jobID
    found = {
        "processes": [each.id for each in listed.processes],
        "inputs": list(described.inputs),
        "status": polled(lambda: plain(client.get_job(job).status)),
        "results": client.get_job_results(job).model_dump(mode="json", exclude_none=True),
        "jobs": [each.jobID for each in client.get_jobs().jobs] == [job],
    }
    return found | {"dismissed": plain(client.dismiss_job(job).status)}


def ecmwf_datastores_client(url):
    import requests
    from ecmwf.datastores.processing import Processing

    client = Processing(
        url,
        headers={},
        session=requests.Session(),
        retry_options={"maximum_tries": 1},
        request_options={"timeout": 60},
        download_options={},
        sleep_max=1.0,
        cleanup=False,
        log_callback=None,
        force_exact_url=True,
    )
    described = client.get_process(PROCESS)
    remote = described.submit(INPUTS)
    found = {
        "processes": client.get_processes().collection_ids,
        "inputs": list(described.json["inputs"]),
        "status": polled(lambda: remote.status),
        "results": remote.get_results().json,
        "jobs": client.get_jobs().request_ids == [remote.request_id],
    }
    return found | {"dismissed": remote.delete()["status"]}


def ogcapi_registry(url):
    import httpx
    from ogcapi_registry import OpenAPIClient, parse_conformance_classes, validate_ogc_api

    classes = httpx.get(f"{url}/conformance").json()["conformsTo"]
    document, _ = OpenAPIClient().fetch(f"{url}/api")
    result = validate_ogc_api(document, parse_conformance_classes(classes))
    return {"valid": result.is_valid, "errors": [str(each) for each in result.errors]}


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](sys.argv[2])))
