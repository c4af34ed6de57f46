"""Networks from inputs to predictive distributions, many of them evaluated together."""

from prerank.models.base import ModuleNetwork, Network
from prerank.models.mixture import MixtureNetwork

__all__ = ["MixtureNetwork", "ModuleNetwork", "Network"]
