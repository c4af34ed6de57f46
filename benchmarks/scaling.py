"""How the time of a step grows with each size, the others being those of households."""

from dataclasses import replace

from problems import Shape, labels, trainer, warm_memory
from timing import Plan, Record, release, side_by_side

_CURVES = {
    "rows": (64, 256, 1024, 4096),
    "draws": (25, 50, 100, 200, 400),
    "targets": (2, 4, 8, 16, 32),
    "components": (1, 2, 5, 10, 20),
    "runs": (1, 2, 5, 10, 25),
}
_SMALL = {"rows": (64, 128), "draws": (25,), "targets": (2,), "components": (2,), "runs": (2,)}


def measure(plan: Plan) -> list[Record]:
    """Milliseconds per step: a row for each size, a column for each pre-rank."""
    found: list[Record] = []
    for axis, values in (_SMALL if plan.small else _CURVES).items():
        steps = {}
        for value in values:
            shape = replace(Shape(), **{axis: value})
            for name in labels(shape.targets):
                if plan.device.type == "cpu":
                    warm_memory(shape, name)
                steps[f"{value} {name}"] = trainer(shape, name, plan.device).step
        timings = side_by_side(steps, plan)
        for value in values:
            names = labels(value if axis == "targets" else Shape().targets)
            times = {name: timings[f"{value} {name}"].ms for name in names}
            found.append({"axis": axis, "value": value, **times})
        del steps
        release(plan.device)
    return found
