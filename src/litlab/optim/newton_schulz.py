"""The orthogonal matrix that is nearest to a matrix, or close to it."""

import torch
from torch import Tensor

from litlab.util.device import has_fast_bfloat16


def orthogonalise(matrix: Tensor, iterations: int = 5) -> Tensor:
    """Return matrices of the same singular vectors whose singular values are near 1.

    The quintic Newton-Schulz iteration with Jordan's coefficients (https://kellerjordan.github.io/posts/muon/): they do
    not converge, but bring every singular value into about 0.7 to 1.2 within five iterations, with matrix products
    alone. bfloat16 is exact enough; float32 is used where the device has no fast bfloat16.

    Args:
        matrix: Shape (rows, columns), or (batch, rows, columns): many small matrices are faster in a batch.
        iterations: Fewer leave small singular values smaller.

    Returns:
        bfloat16 or float32, of the same shape.
    """
    x = matrix.to(torch.bfloat16 if has_fast_bfloat16(matrix.device) else torch.float32)
    x = x / (torch.linalg.vector_norm(x, dim=(-2, -1), keepdim=True) + 1e-7)  # singular values must start at 1 or below
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    multiply_add = torch.addmm if x.ndim == 2 else torch.baddbmm
    for _ in range(iterations):
        gram = x @ x.mT
        polynomial = multiply_add(gram, gram, gram, beta=-4.7750, alpha=2.0315)
        x = multiply_add(x, polynomial, x, beta=3.4445)
    return x.mT if tall else x
