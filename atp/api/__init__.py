"""The REST API: ``path("atp/api/", include("atp.api.urls"))``.

Its views parse, call one verb and present. What an operation takes and gives
is said once, as an :class:`~atp.api.operation.Operation`: the checks of a
request and the OpenAPI document both derive from it.
"""
