"""Networks from inputs to predictive distributions, many of them evaluated together."""

from prerank.models.base import ModuleNetwork, Network
from prerank.models.flow_distribution import FlowDistribution
from prerank.models.flow_network import FlowNetwork
from prerank.models.members import FlowMixture
from prerank.models.mixture_network import MixtureNetwork
from prerank.moved import forward as _forward

__all__ = [
    "FlowDistribution",
    "FlowMixture",
    "FlowNetwork",
    "MixtureNetwork",
    "ModuleNetwork",
    "Network",
]

__getattr__ = _forward(__name__, __name__, FlowLaw="FlowDistribution")
