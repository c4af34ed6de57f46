"""Networks from inputs to predictive distributions, many of them evaluated together."""

from prerank.models.base import ModuleNetwork, Network
from prerank.models.flow import FlowNetwork
from prerank.models.laws import FlowLaw
from prerank.models.mixture import MixtureNetwork

__all__ = ["FlowLaw", "FlowNetwork", "MixtureNetwork", "ModuleNetwork", "Network"]
