"""Networks from inputs to predictive distributions, many of them evaluated together."""

from prerank.models.base import ModuleNetwork, Network
from prerank.models.flow_distribution import FlowLaw
from prerank.models.flow_network import FlowNetwork
from prerank.models.mixture_network import MixtureNetwork

__all__ = ["FlowLaw", "FlowNetwork", "MixtureNetwork", "ModuleNetwork", "Network"]
