"""Networks from inputs to predictive distributions, many of them evaluated together."""

from prerank.models.base import ModuleNetwork, Network
from prerank.models.flow_distribution import FlowDistribution
from prerank.models.flow_network import FlowNetwork
from prerank.models.mixture_network import MixtureNetwork

FlowLaw = FlowDistribution
"""Former name of `FlowDistribution`."""

__all__ = [
    "FlowDistribution",
    "FlowLaw",
    "FlowNetwork",
    "MixtureNetwork",
    "ModuleNetwork",
    "Network",
]
