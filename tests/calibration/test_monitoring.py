"""Evidence that grows row by row: martingales, false alarms, delays, interleaved streams."""

import pytest
import torch

from prerank.calibration.monitoring import (
    EProcess,
    InterleavedEvidence,
    bet_densities,
    unstaked,
)
from prerank.errors import ShapeError


def uniforms(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_bets_are_densities():
    bets = bet_densities()
    assert bool((bets >= 0).all())
    torch.testing.assert_close(bets.mean(0), torch.ones_like(bets[0]))


def test_recursion_is_the_mixture_over_all_starts():
    z = uniforms(12, 1)
    bets = bet_densities()[(z[:, 0] * 1000).long()]  # (12, K)
    weights = [1 - unstaked(0)] + [unstaked(t - 1) - unstaked(t) for t in range(1, 12)]
    capital = sum(w * bets[s:].prod(0) for s, w in enumerate(weights))
    expected = capital.mean() + unstaked(11)
    torch.testing.assert_close(EProcess([1]).update(z)[-1, 0], expected)


def test_expectation_is_one_at_a_fixed_row():
    # Early, where evidence has a small variance: its mean is within four standard errors of 1.
    final = EProcess([20_000, 1]).update(uniforms(10, 20_000, 1))[-1, :, 0]
    assert abs(float(final.mean()) - 1) < 4 * float(final.std()) / 20_000**0.5


def test_batches_do_not_matter():
    z = uniforms(23, 3)
    for lead in (1, 2, 5):
        whole, parts = InterleavedEvidence([2, 1], lead=lead).update(z)
        process = InterleavedEvidence([2, 1], lead=lead)
        pieces = [process.update(batch) for batch in z.split([1, 1, 9, 12])]
        torch.testing.assert_close(torch.cat([piece[0] for piece in pieces]), whole)
        torch.testing.assert_close(torch.cat([piece[1] for piece in pieces]), parts)
        other = InterleavedEvidence([2, 1], lead=lead)
        other.update(z[:7])
        again = InterleavedEvidence([2, 1], lead=lead)
        again.restore(other.capital, other.rows)
        torch.testing.assert_close(again.update(z[7:])[0], whole[7:])


def test_streams_of_a_longer_lead_do_not_share_rows():
    z = uniforms(20, 1).sqrt()
    found = InterleavedEvidence([1], lead=2).update(z)[0][-1]
    each = [EProcess([1]).update(z[i::2])[-1, 0] for i in (0, 1)]
    torch.testing.assert_close(found, max(each) / 2)


def test_capital_stays_finite():
    evidence = EProcess([1]).update(torch.ones(2000, 1))
    assert bool(evidence.isfinite().all())
    assert float(evidence[-1]) > 1e190


def test_shapes_are_checked():
    with pytest.raises(ShapeError, match="z has shape"):
        EProcess([2]).update(uniforms(5, 3))
    with pytest.raises(ShapeError, match="capital"):
        InterleavedEvidence([1]).restore(torch.zeros(2, 1, 3), 5)


@pytest.mark.parametrize("lead", [1, 3])
def test_false_alarms_are_rare(lead):
    """Ville's inequality over 1,000 rows, also with errors that depend within the lead."""
    n, streams, alpha = 1000, 2000, 0.05
    noise = torch.Generator().manual_seed(lead)
    shocks = torch.randn(n + lead - 1, streams, 2, generator=noise, dtype=torch.float64)
    errors = sum(shocks[k : k + n] for k in range(lead)) / lead**0.5
    z = torch.special.ndtr(errors)
    paths = [EProcess([streams, 2]).update(z[i::lead]).mean(-1).amax(0) for i in range(lead)]
    rate = float((torch.stack(paths).amax(0) / lead >= 1 / alpha).double().mean())
    assert rate <= alpha + 2.33 * (alpha * (1 - alpha) / streams) ** 0.5  # one-sided 99 %


@pytest.mark.parametrize(("start", "rows"), [(0, 150), (1000, 300)])
def test_a_shift_of_half_a_deviation_is_found(start, rows):
    noise = torch.Generator().manual_seed(0)
    x = torch.randn(start + rows, 100, 1, generator=noise, dtype=torch.float64)
    x[start:] += 0.5
    evidence = EProcess([100, 1]).update(torch.special.ndtr(x))[..., 0]
    assert float((evidence.amax(0) >= 100).double().mean()) >= 0.9
