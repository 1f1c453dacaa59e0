"""The squared ReLU against its composition: values, derivatives of three orders, vmap, memory, export."""

import pytest
import torch
from torch import nn
from torch.autograd import gradcheck, gradgradcheck

from project.ops.squared_relu import SquaredReLU, SquaredReLUFunction

squared_relu = SquaredReLUFunction.apply


def _composed(x):
    return x.relu().square()


@pytest.fixture
def x():
    torch.manual_seed(0)
    return torch.randn(4, 5, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_values_and_gradients_are_those_of_the_composition(dtype):
    numbers = [-torch.inf, -2.0, -0.0, 0.0, 1e-10, 0.5, 3.0, 1e10, torch.nan]
    x = torch.tensor(numbers, dtype=dtype, requires_grad=True)
    results = [(y, torch.autograd.grad(y.sum(), x)[0]) for y in (squared_relu(x), _composed(x))]
    torch.testing.assert_close(*results, equal_nan=True)


def test_derivatives_of_three_orders(x):
    def gradient(x):
        return torch.autograd.grad((squared_relu(x) * x).sum(), x, create_graph=True)[0]

    assert gradcheck(squared_relu, x, check_batched_grad=True)
    assert gradgradcheck(squared_relu, x, check_batched_grad=True)
    assert gradgradcheck(gradient, x)


def test_the_second_derivative_at_0_is_a_number():
    x = torch.zeros(3, requires_grad=True)
    (first,) = torch.autograd.grad(squared_relu(x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert second.tolist() == [0.0] * 3


def test_one_tensor_of_the_hidden_layer_is_kept_instead_of_two():
    def kept(activation) -> int:
        sizes = {}

        def pack(tensor):
            storage = tensor.untyped_storage()
            sizes[storage.data_ptr()] = storage.nbytes()
            return tensor

        hidden, weight = nn.Linear(8, 64)(torch.randn(16, 8)), torch.randn(64, 2, requires_grad=True)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            output = activation(hidden) @ weight
        assert output.grad_fn is not None
        return sum(sizes.values()) - weight.nbytes

    assert (kept(SquaredReLU()), kept(_composed)) == (16 * 64 * 4, 2 * 16 * 64 * 4)
