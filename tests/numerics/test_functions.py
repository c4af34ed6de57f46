import inspect

import torch

from prerank.numerics import QuickFunction


def test_the_signature_is_kept_where_it_belongs():
    class Double(QuickFunction):
        @staticmethod
        def forward(x):
            return 2 * x

    class Inherits(QuickFunction):
        pass

    assert inspect.signature(Double.forward) is Double.forward.__signature__
    assert not hasattr(torch.autograd.Function.forward, "__signature__")
