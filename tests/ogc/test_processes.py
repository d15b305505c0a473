"""The list of processes and their descriptions, made from Types and contracts."""

import pytest

from atp import checks
from atp.contracts.plain import to_stored, without_tags
from atp.ogc.schemas import NotDescribable, to_openapi

from .conftest import Ogc

REL = "http://www.opengis.net/def/rel/ogc/1.0/"


@pytest.fixture
def anybody(db):
    return Ogc()


def test_landing_page_links_to_everything(anybody):
    answer = anybody.get("")
    links = {link["rel"]: link["href"] for link in answer.json()["links"]}
    assert set(links) == {
        "self",
        "service-desc",
        "service-doc",
        "conformance",
        REL + "conformance",
        REL + "processes",
        REL + "job-list",
    }
    for rel, href in links.items():
        if rel != REL + "job-list":
            assert anybody.get(href).status_code == 200, rel


def test_conformance_names_the_classes(anybody):
    classes = anybody.get("conformance").json()["conformsTo"]
    assert {each.rpartition("/")[2] for each in classes} == {
        "core",
        "ogc-process-description",
        "json",
        "oas30",
        "job-list",
        "dismiss",
    }


def test_public_types_alone_are_listed_by_pages(anybody):
    pages = anybody.pages("processes?limit=1")
    own = ["ogc.echo", "ogc.files", "ogc.relief", "ogc.tidy"]
    of_demo = ["terrain.flow", "terrain.hillshade", "terrain.statistics"]
    listed = [[each["id"] for each in page["processes"]] for page in pages]
    assert listed == [[name] for name in (*own, *of_demo)]


def test_check_names_the_public_type_that_cannot_be_offered():
    [found] = checks.check_processes(None)
    assert found.id == "atp.W020"
    assert "'ogc.positions' is not offered as a process: it has arguments without" in found.msg


def test_description_has_the_contract_in_words_of_openapi(anybody):
    found = anybody.get("processes/ogc.relief").json()
    assert found["title"] == "Relief of a DEM"
    assert found["description"] == "Draw the relief of a digital elevation model."
    assert found["jobControlOptions"] == ["async-execute", "dismiss"]
    assert found["inputs"]["bbox"]["schema"] == {
        "type": "array",
        "items": {"type": "number"},
        "minItems": 4,
        "maxItems": 4,
    }
    assert found["inputs"]["bbox"]["description"] == "west, south, east and north"
    assert found["inputs"]["bbox"]["minOccurs"] == 1
    day, zoom = (found["inputs"][name] for name in ("day", "zoom"))
    assert day["schema"] == {"type": "string", "format": "date", "nullable": True, "default": None}
    assert zoom["schema"] == {"type": "integer", "default": 8}
    assert zoom["minOccurs"] == 0
    assert found["outputs"]["relief"]["schema"]["contentMediaType"] == "image/png"
    assert found["outputs"]["day"]["schema"]["format"] == "date"


def test_unknown_process_is_told_with_the_near_one(anybody):
    for name, hint in (("ogc.relif", "Did you mean 'ogc.relief'?"), ("ogc.private", "")):
        answer = anybody.get(f"processes/{name}")
        assert answer.status_code == 404
        assert answer.json()["type"].endswith("/1.0/no-such-process")
        assert hint in answer.json()["detail"]
        assert "?." not in answer.json()["detail"]


def test_openapi_document_has_every_process(anybody):
    answer = anybody.get("api")
    assert answer.headers["Content-Type"] == "application/vnd.oai.openapi+json;version=3.0"
    document = answer.json()
    assert document["openapi"] == "3.0.3"
    assert "/processes/ogc.relief/execution" in document["paths"]


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"anyOf": [{"type": "null"}, {"type": "string"}]}, {"type": "string", "nullable": True}),
        ({"const": 5}, {"enum": [5]}),
        (
            {"exclusiveMinimum": 0, "type": "integer"},
            {"minimum": 0, "exclusiveMinimum": True, "type": "integer"},
        ),
        (
            {"$ref": "#/$defs/Tree"},
            {
                "type": "object",
                "properties": {"below": {"type": "array", "items": {"type": "object"}}},
            },
        ),
        (
            {"prefixItems": [{"type": "string"}, {"type": "integer"}], "items": False},
            {
                "items": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
                "minItems": 2,
                "maxItems": 2,
            },
        ),
    ],
)
def test_schemas_are_brought_to_openapi(schema, expected):
    below = {"type": "array", "items": {"$ref": "#/$defs/Tree"}}
    defs = {"Tree": {"type": "object", "properties": {"below": below}}}
    assert to_openapi(schema, defs) == expected


def test_schema_that_openapi_cannot_say_is_named():
    with pytest.raises(NotDescribable, match="dependentSchemas"):
        to_openapi({"dependentSchemas": {}}, {})


def test_text_of_clients_gets_the_tags_of_the_schema_and_loses_them_again():
    tagged = {"title": "date", "type": "object", "properties": {"$date": {"type": "string"}}}
    duration = {"title": "duration", "type": "object", "properties": {"$timedelta": {}}}
    schema = {
        "properties": {"day": {"$ref": "#/$defs/Day"}, "days": {"items": tagged}},
        "additionalProperties": {"anyOf": [{"type": "number"}, duration]},
    }
    value = {"day": "2030-01-31", "days": ["2030-02-01"], "more": "P1DT00H00M02S", "n": 5}
    stored = to_stored(value, schema, {"Day": tagged})
    assert stored == {
        "day": {"$date": "2030-01-31"},
        "days": [{"$date": "2030-02-01"}],
        "more": {"$timedelta": [1, 2, 0]},
        "n": 5,
    }
    assert without_tags(stored) == value
