"""The pods that come of an object of another project, as far as the object itself says what is in them.

Most kinds have whole templates of pods. What the project's own programs add to them, such as ports and sidecars, is not
here: none of these programs runs.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from config.protocol import names
from e2e.control_plane.admin import Json

# Fields of a predictor that are fields of a pod's spec, of those that the document uses.
_OF_A_POD: Final = ("schedulerName",)


def pods(objects: Sequence[Json]) -> list[Json]:
    """Of the objects of one example: a pod for each template whose pods this scheduler places, named by number."""
    asked = [one["spec"]["trainer"]["resourcesPerNode"] for one in objects if one["kind"] == "TrainJob"]
    made: list[Json] = []
    for template in (template for one in objects for template in templates(one)):
        spec = template["spec"]
        if asked:
            spec = spec | {"containers": [container | {"resources": asked[0]} for container in spec["containers"]]}
        if spec.get("schedulerName") == names.SCHEDULER_NAME or requested(spec):
            metadata = template.get("metadata", {}) | {"name": f"{objects[-1]['kind'].lower()}-{len(made)}"}
            made.append({"metadata": metadata, "spec": spec})
    return made


def templates(document: Json) -> Iterator[Json]:
    """Each template of pods in the object: `metadata`, if there is any, and `spec`."""
    spec = document["spec"]
    match document["kind"]:
        case "InferenceService":
            predictor = spec["predictor"]
            container = {"name": "kserve-container", "image": "none", "resources": predictor["model"]["resources"]}
            own = {field: predictor[field] for field in _OF_A_POD if field in predictor}
            yield {"spec": own | {"containers": [container]}}
        case "Workflow":
            for step in spec["templates"]:
                scheduler = step.get("schedulerName", spec.get("schedulerName", ""))
                yield {"spec": {"schedulerName": scheduler, "containers": [{"name": "main"} | step["container"]]}}
        case _:
            yield from _whole(document)


def _whole(value: object) -> Iterator[Json]:
    if isinstance(value, list):
        for one in value:
            yield from _whole(one)
    elif isinstance(value, dict):
        if "containers" in (value.get("spec") or {}):
            yield value
        else:
            yield from _whole([*value.values()])


def requested(spec: Json) -> int:
    """Units of GPU memory that its containers request."""
    return sum(int(one["resources"].get("limits", {}).get(names.GPU_MEM, 0)) for one in spec["containers"])
