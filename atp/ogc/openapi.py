"""The OpenAPI document (3.0) of OGC API – Processes, as its conformance class oas30 wants it."""

from __future__ import annotations

from typing import Any

from .. import __version__
from ..api.schema import LARGEST_LIMIT
from ..operations.registry import Declaration
from .documents import CALLBACKS, STATUSES, Document
from .parameters import DEFAULT_LIMIT
from .processes import inputs_of, offered

_TEXT = {"type": "string"}
_LINK = {
    "type": "object",
    "required": ["href"],
    "properties": {"href": _TEXT, "rel": _TEXT, "type": _TEXT, "title": _TEXT},
}
_TIME = {"type": "string", "format": "date-time"}


def _array(schema: str) -> dict[str, Any]:
    return {"type": "array", "items": {"$ref": f"#/components/schemas/{schema}"}}


_LINKS = _array("link")
_SCHEMAS: dict[str, Document] = {
    "link": _LINK,
    "landingPage": {
        "type": "object",
        "required": ["links"],
        "properties": {"title": _TEXT, "description": _TEXT, "links": _LINKS},
    },
    "confClasses": {
        "type": "object",
        "required": ["conformsTo"],
        "properties": {"conformsTo": {"type": "array", "items": _TEXT}},
    },
    "processSummary": {
        "type": "object",
        "required": ["id", "version"],
        "properties": {
            "id": _TEXT,
            "version": _TEXT,
            "title": _TEXT,
            "description": _TEXT,
            "keywords": {"type": "array", "items": _TEXT},
            "jobControlOptions": {"type": "array", "items": _TEXT},
            "outputTransmission": {"type": "array", "items": _TEXT},
            "links": _LINKS,
        },
    },
    "processList": {
        "type": "object",
        "required": ["processes", "links"],
        "properties": {
            "processes": {
                "type": "array",
                "items": {"$ref": "#/components/schemas/processSummary"},
            },
            "links": _LINKS,
        },
    },
    "process": {
        "allOf": [
            {"$ref": "#/components/schemas/processSummary"},
            {
                "type": "object",
                "properties": {"inputs": {"type": "object"}, "outputs": {"type": "object"}},
            },
        ]
    },
    "execute": {
        "type": "object",
        "properties": {
            "inputs": {"type": "object"},
            "outputs": {"type": "object"},
            "response": {"type": "string", "enum": ["raw", "document"]},
            "subscriber": {
                "type": "object",
                "properties": {name: {**_TEXT, "format": "uri"} for name in CALLBACKS},
            },
        },
    },
    "statusInfo": {
        "type": "object",
        "required": ["jobID", "status", "type"],
        "properties": {
            "processID": _TEXT,
            "type": {"type": "string", "enum": ["process"]},
            "jobID": _TEXT,
            "status": {"type": "string", "enum": list(STATUSES)},
            "message": _TEXT,
            "created": _TIME,
            "started": _TIME,
            "finished": _TIME,
            "updated": _TIME,
            "progress": {"type": "integer", "minimum": 0, "maximum": 100},
            "links": _LINKS,
        },
    },
    "jobList": {
        "type": "object",
        "required": ["jobs", "links"],
        "properties": {
            "jobs": _array("statusInfo"),
            "links": _LINKS,
        },
    },
    "results": {"type": "object", "additionalProperties": {}},
    "exception": {
        "type": "object",
        "required": ["type"],
        "properties": {
            "type": _TEXT,
            "title": _TEXT,
            "status": {"type": "integer"},
            "detail": _TEXT,
            "instance": _TEXT,
        },
        "additionalProperties": True,
    },
}
_LIMIT = {
    "name": "limit",
    "in": "query",
    "schema": {"type": "integer", "minimum": 1, "maximum": LARGEST_LIMIT, "default": DEFAULT_LIMIT},
}


def document(server: str) -> Document:
    """Return the OpenAPI document of the server at this address."""
    return {
        "openapi": "3.0.3",
        "info": {"title": "OGC API - Processes of ATP", "version": __version__},
        "servers": [{"url": server}],
        "paths": _paths(),
        "components": {"schemas": _SCHEMAS},
    }


def _paths() -> dict[str, Document]:
    process, job = [_in_path("processID")], [_in_path("jobId")]
    outputs = {"name": "outputs", "in": "query", "schema": _TEXT, "description": "Their names."}
    any_process = _execution("execute", "Run a process", _schema("execute"))
    executions = {
        f"/processes/{each.identifier}/execution": {
            "post": _execution(
                f"execute_{each.identifier}", f"Run {each.identifier}", _body_of(each)
            )
        }
        for each in offered()
    }
    return {
        "/": {"get": _operation("getLandingPage", "The landing page", "landingPage")},
        "/conformance": {"get": _operation("getConformance", "Its classes", "confClasses")},
        "/processes": {
            "get": _operation("getProcesses", "The processes", "processList", query=[_LIMIT])
        },
        "/processes/{processID}": {
            "parameters": process,
            "get": _operation("getProcess", "One process", "process", missing=True),
        },
        "/processes/{processID}/execution": {"parameters": process, "post": any_process},
        **executions,
        "/jobs": {"get": _operation("getJobs", "Jobs, newest first", "jobList", query=_FILTERS)},
        "/jobs/{jobId}": {
            "parameters": job,
            "get": _operation("getStatus", "The status of a job", "statusInfo", missing=True),
            "delete": _operation(
                "dismiss", "Cancel a job, or remove one that has ended", "statusInfo", missing=True
            ),
        },
        "/jobs/{jobId}/results": {
            "parameters": job,
            "get": _operation(
                "getResult", "The results of a job", "results", query=[outputs], missing=True
            ),
        },
    }


def _body_of(task_type: Declaration) -> Document:
    """Return the schema of the body that runs a process."""
    inputs = inputs_of(task_type)
    schema: Document = {"type": "object", "properties": {each.name: each.schema for each in inputs}}
    required = [each.name for each in inputs if each.is_required]
    if required:
        schema["required"] = required
    return {"allOf": [_schema("execute"), {"type": "object", "properties": {"inputs": schema}}]}


def _schema(name: str) -> Document:
    return {"$ref": f"#/components/schemas/{name}"}


def _words(name: str, *, of: dict[str, Any] | None = None) -> Document:
    schema = {"type": "array", "items": of or _TEXT}
    return {"name": name, "in": "query", "schema": schema, "style": "form", "explode": False}


_SECONDS = {"type": "integer", "minimum": 0}
_FILTERS = [
    _words("type", of={"type": "string", "enum": ["process"]}),
    _words("processID"),
    _words("status", of={"type": "string", "enum": list(STATUSES)}),
    {"name": "datetime", "in": "query", "schema": _TEXT, "description": "A time, or an interval."},
    {"name": "minDuration", "in": "query", "schema": _SECONDS},
    {"name": "maxDuration", "in": "query", "schema": _SECONDS},
    _LIMIT,
]


def _in_path(name: str) -> Document:
    return {"name": name, "in": "path", "required": True, "schema": _TEXT}


def _response(description: str, schema: str) -> Document:
    content = {"application/json": {"schema": _schema(schema)}}
    return {"description": description, "content": content}


def _operation(
    id: str, summary: str, schema: str, *, query: Any = (), missing: bool = False
) -> Document:
    responses = {"200": _response(summary, schema), "default": _response("An error", "exception")}
    if missing:
        responses["404"] = _response("It does not exist", "exception")
    operation: Document = {"operationId": id, "summary": summary, "responses": responses}
    return operation | ({"parameters": list(query)} if query else {})


def _execution(id: str, summary: str, schema: Document) -> Document:
    created = _response("The job has been accepted", "statusInfo")
    created["headers"] = {"Location": {"description": "The address of the job.", "schema": _TEXT}}
    return {
        "operationId": id,
        "summary": summary,
        "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}},
        "responses": {
            "201": created,
            "200": _response("The results, if the client has waited for them", "results"),
            "404": _response("There is no such process", "exception"),
            "default": _response("An error", "exception"),
        },
    }
