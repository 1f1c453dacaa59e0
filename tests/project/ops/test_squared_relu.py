"""The squared ReLU against its composition: values, derivatives of three orders, vmap, compiler, memory."""

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


def test_values_and_gradients_are_those_of_the_composition():
    x = torch.tensor([-torch.inf, -2.0, -0.0, 0.0, 1e-10, 0.5, 3.0, 1e10, torch.nan], requires_grad=True)
    results = [(y, torch.autograd.grad(y.sum(), x)[0]) for y in (squared_relu(x), _composed(x))]
    torch.testing.assert_close(*results, equal_nan=True)


def test_derivatives_of_the_first_and_second_order(x):
    assert gradcheck(squared_relu, x, check_batched_grad=True)
    assert gradgradcheck(squared_relu, x, check_batched_grad=True)


def test_derivatives_of_the_third_order(x):
    def gradient(x):
        return torch.autograd.grad((squared_relu(x) * x).sum(), x, create_graph=True)[0]

    assert gradgradcheck(gradient, x)


def test_the_second_derivative_at_0_is_a_number():
    x = torch.zeros(3, requires_grad=True)
    (first,) = torch.autograd.grad(squared_relu(x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert second.tolist() == [0.0] * 3


@pytest.mark.parametrize("dim", [0, 1])
def test_vmap_is_a_loop(x, dim):
    x = x.detach()
    rows = torch.stack([squared_relu(row) for row in x.unbind(dim)])
    assert torch.func.vmap(squared_relu, in_dims=dim)(x).equal(rows)


def test_vmap_of_gradients_is_a_loop(x):
    """Also where the output is the same for all samples, and the gradient is not."""
    x = x.detach()
    slope = torch.func.grad(lambda row: squared_relu(row).sum())
    torch.testing.assert_close(torch.func.vmap(slope)(x), torch.stack([slope(row) for row in x]))
    curvature = torch.func.jacrev(torch.func.jacrev(lambda row: squared_relu(row).sum()))(x[0])
    torch.testing.assert_close(curvature, torch.diag(2.0 * (x[0] > 0).double()))
    jacobian = torch.func.jacrev(squared_relu)(x[0])
    torch.testing.assert_close(jacobian, torch.diag(2 * x[0].relu()))


def test_half_precision_follows_the_composition():
    x = torch.linspace(-3, 3, 50, dtype=torch.bfloat16, requires_grad=True)
    results = [torch.autograd.grad(y.sum(), x)[0] for y in (squared_relu(x), _composed(x))]
    torch.testing.assert_close(*results)


def _kept(activation) -> int:
    """Bytes that are kept for the backward pass behind a linear layer and before another, without their weights."""
    first, second, storages = nn.Linear(8, 64), nn.Linear(64, 2), {}
    parameters = {p.untyped_storage().data_ptr() for p in (*first.parameters(), *second.parameters())}
    x = torch.randn(16, 8)

    def pack(tensor):
        if tensor.untyped_storage().data_ptr() not in parameters:
            storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = second(activation(first(x)))
    total = sum(storages.values()) - x.untyped_storage().nbytes()
    del output
    return total


def test_one_tensor_of_the_hidden_layer_is_kept_instead_of_two():
    hidden = 16 * 64 * 4
    assert (_kept(SquaredReLU()), _kept(_composed)) == (hidden, 2 * hidden)


def test_exports(x):
    network = nn.Sequential(nn.Linear(5, 8), SquaredReLU(), nn.Linear(8, 2)).double()
    rows = torch.export.Dim("rows")
    exported = torch.export.export(network, (x.detach(),), dynamic_shapes=({0: rows},)).module()
    other = torch.randn(7, 5, dtype=torch.float64)
    torch.testing.assert_close(exported(other), network(other))
