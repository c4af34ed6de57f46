"""The time to fit a calibration head: 3,000 rows, 4 targets, 5 components, all pre-ranks.

The forecast is wrong in its widths alone, or in widths, tails and targets alike, so that nearly all
levels of the head take part in the fit; then each component has four copies.
"""

import torch

from prerank import CalibrationHead, GaussianMixture
from timing import Plan, Record, side_by_side


def measure(plan: Plan) -> list[Record]:
    """Seconds of a fit, and the levels that it takes up."""
    rows = 200 if plan.small else 3_000
    base, y = _forecast(rows, plan.device)
    tails = torch.distributions.Chi2(3.0).sample(torch.Size((rows, 1))).to(y)
    sizes = torch.tensor([0.6, 0.8, 1.0, 1.2]).to(y)
    heavy = base.mean + (y - base.mean) * (3 / tails).sqrt() * sizes
    heads: dict[str, CalibrationHead] = {}

    def fit(name: str, observed: torch.Tensor) -> None:
        heads[name] = CalibrationHead().fit(base, observed)

    timings = side_by_side(
        {"widths": lambda: fit("widths", y), "widths and tails": lambda: fit("tails", heavy)}, plan
    )
    levels = ["+".join(sorted(head.change_.active)) or "none" for head in heads.values()]
    return [
        {"forecast wrong in": name, "rows": rows, "seconds": timing.ms / 1e3, "levels": level}
        for (name, timing), level in zip(timings.items(), levels, strict=True)
    ]


def _forecast(rows: int, device: torch.device) -> tuple[GaussianMixture, torch.Tensor]:
    """Mixtures that are too narrow, and observations."""
    draw = torch.Generator().manual_seed(0)
    shape = (rows, 5, 4)
    logits, loc = torch.randn(shape[:2], generator=draw), 2 * torch.randn(shape, generator=draw)
    tril = torch.tril(0.4 * torch.randn(*shape, 4, generator=draw), -1) + torch.eye(4)
    true = GaussianMixture(*(part.to(device) for part in (logits, loc, tril)))
    mean = true.mean.unsqueeze(-2)
    narrow = GaussianMixture(true.logits, mean + 0.8 * (true.loc - mean), 0.7 * true.scale_tril)
    return narrow, true.sample(generator=1)
