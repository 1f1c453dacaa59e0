"""The squared ReLU against its composition: values, derivatives of two orders, vmap, memory."""

import torch
from torch.autograd import gradcheck, gradgradcheck

from examples.operators.squared_relu import SquaredReLUFunction

squared_relu = SquaredReLUFunction.apply


def test_values_and_gradients_are_those_of_the_composition():
    numbers = [-torch.inf, -2.0, -0.0, 0.0, 1e-10, 0.5, 3.0, 1e10, torch.nan]
    x = torch.tensor(numbers, requires_grad=True)
    squares = squared_relu(x), x.relu().square()
    results = [(y, torch.autograd.grad(y.sum(), x)[0]) for y in squares]
    torch.testing.assert_close(*results, equal_nan=True)


def test_derivatives_also_the_second_at_0():
    torch.manual_seed(0)
    x = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    assert gradcheck(squared_relu, x, check_batched_grad=True)
    assert gradgradcheck(squared_relu, x, check_batched_grad=True)
    zero = torch.zeros(3, requires_grad=True)
    (first,) = torch.autograd.grad(squared_relu(zero).sum(), zero, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), zero)
    assert second.tolist() == [0.0] * 3
