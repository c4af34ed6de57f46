"""What a calibration head changes: a handful of numbers, all zero where it changes nothing."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

__all__ = ["LEVELS", "Change", "described"]

LEVELS: dict[str, tuple[str, ...]] = {
    "common": ("width", "spread", "temperature", "kept"),
    "targets": ("widths", "shifts", "contraction", "width_power"),
    "means": ("slopes",),
    "dependence": ("coupling", "directions"),
    "copies": ("weights", "copy_widths", "copy_shifts"),
    "tilts": ("tilts", "width_tilts"),
    "mixing": ("mixing",),
}
"""Fields of a `Change` by level: a fit adds one level after another."""

_FIRST_WIDTH = 0.25  # log-widths of the copies at the start: 0, -0.25, 0.25, -0.5, ...
_FIRST_WEIGHT = -1.0  # of each copy beside the first, on a log scale
_DEGREE = 4  # of the polynomials of the tilts
_FIRST_KEPT = math.log(0.01)  # share of the forecast that stays beside the copies, as log-odds


class Change(NamedTuple):
    r"""Parameters of a change of predictive distributions, the same for all rows.

    With predicted mean m and standard deviations s of a row, component k with weight
    :math:`\pi_k`, location :math:`\mu_k`, standard deviations :math:`\sigma_k` and correlation
    matrix :math:`R_k` becomes C copies:

    .. math:: \log \pi_{kc} = e^{t} \log \pi_k + v_c + \sum_j \Big( r_j \log \frac{\sigma_{kj}}{s_j}
              + \sum_{l=1}^{4} \theta_{jl} P_l\big(2 \Phi(\tfrac{\mu_{kcj} - m'_j}{s_j}) - 1\big)
              \Big), \qquad
              \mu_{kc} = m' + \Big(1 + (e^{a} - 1) \frac{\sigma_k}{s}\Big) (\mu_k - m)
              + (b + b_c) \sigma_k, \qquad
              \Sigma_{kc} = W_{kc} \, B_k T \tilde R_k T B_k^\top \, W_{kc},

    with the mean :math:`m' = m + g (m - \bar m)`, the widths
    :math:`W_{kc} = \mathrm{diag}(e^{w + w_c} (\sigma_k / s)^{q} \sigma_k)` and the Legendre
    polynomials :math:`P_l` of mean square 1: weights are tilted by where a component lies in its
    margins and by how narrow it is. :math:`\tilde R_k` is the matrix power
    :math:`R_k^{\exp(\kappa)}`, scaled to a unit diagonal: it changes correlations and leaves the
    margins. :math:`T = U \mathrm{diag}(e^{d}) U^\top` stretches along the principal axes U of the
    row's predicted correlation matrix. :math:`B_k` is the matrix exponential of the symmetric
    matrix M with zeros on its diagonal, scaled so that it leaves the margins: it makes targets
    correlated that were predicted as independent. Each component changes in units of its own
    width, so a narrow one, such as the spike of a repeated value, stays where it is unless the
    mean of its row moves.

    The forecast stays beside its copies with the share :math:`\epsilon`, one in a hundred at first:
    no observation loses more than :math:`-\log \epsilon` nats, however rare the cases that the
    copies do not suit. An ensemble has no density that this could protect, and none of its members
    stays.

    Distributions without components keep the parts that need none.

    Attributes:
        width: common log-width, `(...)`, part of w.
        spread: common log-distance of components from the mean, `(...)`, part of a.
        coupling: kappa, `(...)`.
        temperature: t, `(...)`.
        kept: log-odds of the share of the forecast that stays, less their first value, `(...)`.
        widths: log-width of each target, `(..., D)`, part of w.
        shifts: b, `(..., D)`, in standard deviations of the component.
        slopes: g, `(..., D)`: predicted means that vary too little over the rows, or too much.
        contraction: that of each target, `(..., D)`, part of a.
        width_power: q, `(..., D)`.
        directions: d, `(..., D)`, from the first principal axis to the last.
        mixing: M, `(..., D, D)`, of which the entries above the diagonal count.
        weights: v, `(..., C)`, normalised by a softmax.
        copy_widths: w_c, `(..., C, D)`.
        copy_shifts: b_c, `(..., C, D)`.
        tilts: theta, `(..., D, 4)`.
        width_tilts: r, `(..., D)`.
        centre: the mean of m over the rows of the fit, `(..., D)`: a constant, the only part of a
            change that has the units of the targets.
    """

    width: Tensor
    spread: Tensor
    coupling: Tensor
    temperature: Tensor
    kept: Tensor
    widths: Tensor
    shifts: Tensor
    slopes: Tensor
    contraction: Tensor
    width_power: Tensor
    directions: Tensor
    mixing: Tensor
    weights: Tensor
    copy_widths: Tensor
    copy_shifts: Tensor
    tilts: Tensor
    width_tilts: Tensor
    centre: Tensor

    @classmethod
    def identity(
        cls, targets: int, copies: int, *, stack: tuple[int, ...], like: Tensor
    ) -> "Change":
        """The change that changes nothing.

        Example:
            >>> change = Change.identity(3, 4, stack=(), like=torch.zeros(()))
            >>> change.copy_widths.shape, change.active
            (torch.Size([4, 3]), frozenset())
        """
        scalar, vector = like.new_zeros(stack), like.new_zeros(*stack, targets)
        square = like.new_zeros(*stack, targets, targets)
        many = like.new_zeros(*stack, copies, targets)
        numbers = dict.fromkeys(("width", "spread", "coupling", "temperature", "kept"), scalar)
        numbers |= {"mixing": square, "weights": many[..., 0]}
        numbers |= {"copy_widths": many, "copy_shifts": many}
        numbers["tilts"] = like.new_zeros(*stack, targets, _DEGREE)
        return cls(**{name: numbers.get(name, vector) for name in cls._fields})

    @property
    def active(self) -> frozenset[str]:
        """Names of the levels that change anything, in any member of a stack."""
        return frozenset(
            level
            for level, names in LEVELS.items()
            if any(bool(getattr(self, name).any()) for name in names if name != "weights")
        )

    @property
    def copies(self) -> int:
        """C."""
        return self.weights.shape[-1]

    @property
    def shares(self) -> tuple[Tensor, Tensor]:
        """Logarithms of the shares of the copies together, and of the forecast as it was."""
        odds = _FIRST_KEPT + self.kept
        return logsigmoid(-odds), logsigmoid(odds)

    @property
    def blend(self) -> Tensor:
        """The matrix exponential of M, `(..., D, D)`."""
        upper = self.mixing.triu(1)
        return torch.linalg.matrix_exp(upper + upper.mT)

    def rowwise(self, batch: torch.Size) -> "Change":
        """The same with an axis for the rows, unless it has one: its shape is that of the batch."""
        rank = self.width.dim()
        own = self.width.shape == batch
        return self if own else Change(*(part.unsqueeze(rank) for part in self))

    def with_copies_apart(self) -> "Change":
        """The same with copies of different widths, from which a fit can start."""
        order = torch.arange(self.copies, dtype=self.weights.dtype, device=self.weights.device)
        ladder = _FIRST_WIDTH * ((order + 1) / 2).floor() * (1 - 2 * (order % 2))
        together = ~self.copy_widths.flatten(-2).any(-1)[..., None]
        return self._replace(
            weights=torch.where(
                together, torch.where(order > 0, _FIRST_WEIGHT, 0.0).to(ladder), self.weights
            ),
            copy_widths=torch.where(together[..., None], ladder.unsqueeze(-1), self.copy_widths),
        )

    def towards(self, other: "Change", amount: Tensor) -> "Change":
        """Go a part of the way to another change: amount `(...)` 0 stays here, 1 is the other.

        The copies keep the other's weights: those matter only where the copies differ.
        """

        def part(a: Tensor, b: Tensor) -> Tensor:
            way = amount.reshape(amount.shape + (1,) * (b.dim() - amount.dim()))
            return torch.where(way > 0, a + way * (b - a), a)

        way = Change(*map(part, self, other))
        weights = torch.where(amount.unsqueeze(-1) > 0, other.weights, self.weights)
        return way._replace(weights=weights)


_NOTED = 0.02  # changes by less, and copies with a smaller share, go without a word


def described(change: Change, targets: Sequence[str]) -> str:
    """What a change does, in words, one line for each kind of change.

    Example:
        >>> change = Change.identity(2, 2, stack=(), like=torch.zeros(()))
        >>> print(described(change, ["rain", "wind"]))
        nothing
        >>> print(described(change._replace(width=torch.tensor(0.26)), ["rain", "wind"]))
        widths of rain and wind by 1.3
    """
    shares = torch.softmax(change.weights, -1)
    order = shares.argsort(descending=True).tolist()
    apart = "copies" in change.active
    main = order[0]
    widths = change.width + change.widths + (change.copy_widths[main] if apart else 0)
    shifts = change.shifts + (change.copy_shifts[main] if apart else 0)
    lines = _by_value(
        "widths of {} by {}", widths.exp(), targets, around=1.0, form="{:.2g}", noted=0.05
    )
    lines += _by_value(
        "deviations of the predicted mean of {} from its average by {}",
        1 + change.slopes,
        targets,
        around=1.0,
        form="{:.2f}",
    )
    lines += _by_value(
        "{} shifted by {} standard deviations", shifts, targets, around=0.0, form="{:+.2f}"
    )
    kept = float(change.shares[1].exp())
    if kept > _NOTED:
        lines.append(f"{kept:.0%} of the cases as they were")
    for copy in order[1:] if apart else ():
        ratio = float((change.copy_widths[copy] - change.copy_widths[main]).mean().exp())
        moved = float((change.copy_shifts[copy] - change.copy_shifts[main]).abs().max())
        if float(shares[copy]) > _NOTED and max(abs(ratio - 1), moved) > 0.05:
            text = f"{float(shares[copy]):.0%} of the cases {ratio:.2g} times as wide"
            lines.append(f"{text}, shifted by up to {moved:.1f}" if moved > 0.05 else text)
    for name, text in (
        ("temperature", "weights of components to the power {:.2f}"),
        ("coupling", "correlations within components to the power {:.2f}"),
    ):
        value = float(getattr(change, name))
        if abs(value) > _NOTED:
            lines.append(text.format(math.exp(value)))
    lines += _by_value(
        "distances of wide components of {} from the mean by {}",
        (change.spread + change.contraction).exp(),
        targets,
        around=1.0,
        form="{:.2f}",
    )
    lines += _by_value(
        "relative widths of components of {} to the power {}",
        1 + change.width_power,
        targets,
        around=1.0,
        form="{:.2f}",
    )
    least, most = (float(v) for v in change.directions.exp().aminmax())
    if max(abs(least - 1), abs(most - 1)) > _NOTED:
        lines.append(f"spread along principal axes by {least:.2f} to {most:.2f}")
    tilted = (change.tilts.abs().amax(-1) + change.width_tilts.abs()).tolist()
    if max(tilted) > _NOTED:
        most_tilted = targets[tilted.index(max(tilted))]
        lines.append(f"weights of components by their place and width in {most_tilted} most")
    upper = change.mixing.triu(1)
    if float(upper.abs().max()) > _NOTED:
        i, j = divmod(int(upper.abs().argmax()), len(targets))
        word = "more" if float(upper[i, j]) > 0 else "less"
        lines.append(f"correlations of targets: {targets[i]} and {targets[j]} most, {word} alike")
    return "\n".join(lines) or "nothing"


def _by_value(
    text: str,
    values: Tensor,
    targets: Sequence[str],
    *,
    around: float,
    form: str,
    noted: float = _NOTED,
) -> list[str]:
    """One line for each value, with the targets that share it."""
    groups: dict[str, list[str]] = {}
    for name, value in zip(targets, values.tolist(), strict=True):
        if abs(value - around) > noted:
            groups.setdefault(form.format(value), []).append(name)
    lines = []
    for value, names in groups.items():
        listed = ", ".join(names[:-1]) + " and " + names[-1] if len(names) > 1 else names[0]
        lines.append(text.format(listed, value))
    return lines
