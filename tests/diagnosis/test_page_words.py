"""The words of a page agree with its headline: captions, alternative texts and tables."""

import html
import math
import re

import pytest
import torch
from torch.distributions import MultivariateNormal

import prerank
from prerank.diagnosis.diagnosis_page import diagnosis_page
from prerank.diagnosis.glossary import glossary
from prerank.distributions import Ensemble
from prerank.report.html import render_page

N, D = 1000, 3
WIDTH, BIAS = "too narrow|too wide", "lower than predicted|higher than predicted"


def t4(g):
    x = torch.randn(N, D, generator=g)
    return x / (torch.randn(4, N, D, generator=g).square().mean(0) * 2).sqrt()


def gamma(g):
    return -torch.rand(4, N, D, generator=g).log().sum(0) / 2 - 2


def two_modes(g):
    sign = 2 * torch.randint(2, (N, D), generator=g) - 1
    return 0.95 * sign + math.sqrt(1 - 0.95**2) * torch.randn(N, D, generator=g)


def gaussian(y):
    return MultivariateNormal(torch.zeros(N, D), torch.eye(D)), y


def shuffled(g):
    """Members of correlated targets, shuffled within each target."""
    root = torch.linalg.cholesky(0.3 * torch.eye(D) + 0.7)
    draws = torch.randn(41, N, D, generator=g) @ root.T
    order = torch.rand(40, N, D, generator=g).argsort(0)
    return Ensemble(draws[1:].gather(0, order)), draws[0]


DEPENDENCE = "wrong dependence"
SCENARIOS = {
    "heavy tails": (lambda g: gaussian(t4(g)), "extreme values", f"{WIDTH}|{BIAS}"),
    "skewed": (lambda g: gaussian(gamma(g)), "skewed", f"{WIDTH}|{BIAS}"),
    "several modes": (lambda g: gaussian(two_modes(g)), "several modes", f"{WIDTH}|{BIAS}|heavy"),
    DEPENDENCE: (shuffled, "move together more", f"{WIDTH}|{BIAS}|tails|together less"),
}


@pytest.fixture(scope="module", params=SCENARIOS)
def scenario(request):
    make, headline, contrary = SCENARIOS[request.param]
    found = prerank.diagnose(*make(torch.Generator().manual_seed(0)), generator=0)
    return found, headline, contrary, request.param != DEPENDENCE


def test_no_word_of_a_figure_or_a_table_contradicts_the_headline(scenario):
    found, headline, contrary, in_targets = scenario
    page = diagnosis_page(found)
    assert headline in page.headline
    text = render_page(page)
    parts = re.findall(r'alt="([^"]*)"|<figcaption.*?>(.*?)</figcaption>|<td.*?>(.*?)</td>', text)
    words = html.unescape(" ".join(part for group in parts for part in group))
    assert (headline in words) == in_targets  # figures show PITs of one pre-rank each
    assert not re.search(contrary, words)
    assert not re.search(contrary, " ".join(page.points))


def test_captions_of_targets_are_in_the_words_of_the_verdict(scenario):
    found, headline, _, in_targets = scenario
    assert bool(found.causes[0].targets) == in_targets
    assert (headline in found.displays()[0].caption) == in_targets


def test_thresholds_and_the_error_rates_are_stated():
    text = html.unescape(render_page(diagnosis_page(prerank.diagnose(*few(500), generator=0))))
    for words in glossary().values():
        assert words in text
    assert "at least 0, 0.01 or 0.03" in text
    assert "any of these in at most 10 %" in text


def few(n, targets=3):
    y = torch.randn(n, targets, generator=torch.Generator().manual_seed(1))
    return MultivariateNormal(torch.zeros(n, targets), torch.eye(targets)), y


def test_no_tick_for_few_rows():
    found = prerank.diagnose(*few(159), generator=0)
    assert found.verdict().status == "unclear"
    assert "Too few rows" in str(found)
    text = render_page(diagnosis_page(found))
    assert 'class="verdict unclear"' in text
    assert "Good" not in text


def test_figures_of_many_targets_show_those_that_deviate_most():
    dist, y = few(100, 40)
    y[:, 35] *= 3
    found = prerank.diagnose(dist, y, preranks="marginal", generator=0)
    (display,) = found.displays()
    assert len(display.plot().lines_) == 16
    assert 35 in display.drawn
    assert "Drawn are the 16 of 40 that deviate most." in display.caption
    page = render_page(diagnosis_page(found))
    # Seen and read: the largest error, the curves, the histograms.
    assert page.count("Drawn are the 16 of 40 that deviate most.") == 6
    assert all(f">y{j}<" in page for j in range(40))
