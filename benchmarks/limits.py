"""How far a training step is from what the device could do at best.

The network part of a step is counted by hand, for M runs with P parameters, of which W are weights,
on B rows with L inputs and D targets, H hidden units in all and O outputs:

- operations: a multiplication and an addition for each weight and row, once forward and twice
  backward (for the weights and for the layer below), 6 M B W;
- bytes: parameters and both moments of Adam read and written, the rows read, the values of hidden
  units and outputs written forward and read backward, 4 M (6 P + B (L + D) + 2 B (H + O)).

Neither can take less time than the device needs for a large matrix product or a large copy of that
size: the larger of the two is the floor. Likelihood and penalty come on top of it.
"""

from dataclasses import dataclass, replace

import torch

from problems import NONE, Shape, trainer
from timing import Plan, Record, release, side_by_side

_HIDDEN = 200
_RUNS = (5, 25, 175)


@dataclass(frozen=True)
class Limits:
    """Measured rates: bytes and floating-point operations per second."""

    bandwidth: float
    arithmetic: float

    def floor_ms(self, operations: int, moved: int) -> float:
        """Least milliseconds for so many operations and bytes."""
        return 1e3 * max(operations / self.arithmetic, moved / self.bandwidth)


def measure(plan: Plan) -> list[Record]:
    """The unpenalised step against its floor."""
    limits = card_limits(plan)
    found: list[Record] = []
    for runs in _RUNS[:1] if plan.small else _RUNS:
        shape = replace(Shape(), runs=runs)
        operations, moved = counted_work(shape)
        step = trainer(shape, NONE, plan.device).step
        ms = side_by_side({NONE: step}, plan)[NONE].ms
        floor = limits.floor_ms(operations, moved)
        found.append(
            {
                "runs": runs,
                "ms": ms,
                "floor ms": floor,
                "distance": ms / floor,
                "GFLOP": operations / 1e9,
                "MB": moved / 1e6,
                "card TFLOP/s": limits.arithmetic / 1e12,
                "card GB/s": limits.bandwidth / 1e9,
            }
        )
        del step
        release(plan.device)
    return found


def card_limits(plan: Plan) -> Limits:
    """A large copy and a large float32 product, at torch's default precision."""
    size = 512 if plan.small else 8192
    a, b, c = torch.randn(3, size, size, device=plan.device)
    source = torch.randn(2**20 if plan.small else 2**28, device=plan.device)
    target = torch.empty_like(source)
    timings = side_by_side(
        {"copy": lambda: target.copy_(source), "product": lambda: torch.mm(a, b, out=c)}, plan
    )
    return Limits(
        bandwidth=2 * source.nbytes / (timings["copy"].ms / 1e3),
        arithmetic=2 * size**3 / (timings["product"].ms / 1e3),
    )


def counted_work(shape: Shape) -> tuple[int, int]:
    """Operations and bytes of the network part of a step."""
    dim = shape.targets
    outputs = shape.components * (1 + dim + dim * (dim + 1) // 2)
    parameters = shape.network.n_parameters
    weights = parameters - _HIDDEN - outputs
    operations = 6 * shape.runs * shape.rows * weights
    values = 6 * parameters + shape.rows * (shape.inputs + dim + 2 * (_HIDDEN + outputs))
    return operations, 4 * shape.runs * values
