"""Results in other libraries: metrics of torchmetrics and skpro, callbacks of Lightning, trackers.

Adapters bring forecasts in, these take results out. The libraries are imported when a function
needs them, not with this package.
"""

from typing import TYPE_CHECKING

from prerank.lazy_names import names_from

if TYPE_CHECKING:
    from prerank.integrations.callback_class import lightning_callback
    from prerank.integrations.metric_class import torchmetric
    from prerank.integrations.proba_metric import skpro_metric
    from prerank.integrations.trackers import log_to_mlflow, log_to_wandb, tracked_numbers

__all__ = [
    "lightning_callback",
    "log_to_mlflow",
    "log_to_wandb",
    "skpro_metric",
    "torchmetric",
    "tracked_numbers",
]

__getattr__ = names_from(__name__, "trackers", "metric_class", "callback_class", "proba_metric")
