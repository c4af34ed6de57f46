"""Predictions of other libraries as distributions that can be diagnosed.

Each function returns a `torch.distributions.Distribution` with `batch_shape (N,)` and
`event_shape (D,)`, with the exact law where it is known, or a `prerank.Ensemble` of samples.

>>> import prerank, torch
>>> from torch.distributions import Independent, Normal
>>> from prerank.adapters import mixture
>>> members = [Independent(Normal(torch.full((200, 2), m), 1.0), 1) for m in (-0.1, 0.1)]
>>> table = prerank.diagnose(mixture(members), torch.randn(200, 2)).table

The libraries are imported when a function needs them, not with this package.
"""

from prerank.adapters.arviz import from_arviz
from prerank.adapters.dimension_matching import from_xarray, named_forecast, named_samples
from prerank.adapters.fields import Field
from prerank.adapters.labels import Labelled, from_arrays, from_draws, from_pandas
from prerank.adapters.mixtures import Mixture, mixture
from prerank.adapters.named_forecasts import NamedForecast
from prerank.adapters.networks import deep_ensemble, from_zuko, mc_dropout
from prerank.adapters.ngboost import from_ngboost
from prerank.adapters.products import Product, product
from prerank.adapters.sbi import AmortisedPosterior, from_sbi
from prerank.adapters.skpro import from_skpro
from prerank.adapters.trajectories import from_darts, from_gluonts

__all__ = [
    "AmortisedPosterior",
    "Field",
    "Labelled",
    "Mixture",
    "NamedForecast",
    "Product",
    "deep_ensemble",
    "from_arrays",
    "from_arviz",
    "from_darts",
    "from_draws",
    "from_gluonts",
    "from_ngboost",
    "from_pandas",
    "from_sbi",
    "from_skpro",
    "from_xarray",
    "from_zuko",
    "mc_dropout",
    "mixture",
    "named_forecast",
    "named_samples",
    "product",
]
