"""Generated C of single operators against torch: small tensors, which are written out, and large ones, in loops."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fwnkf.export.c_parity import FLAGS
from fwnkf.export.c_source import _constant
from fwnkf.native.bodies import body, store
from fwnkf.native.builder import Builder, Pool
from fwnkf.native.c_helpers import preamble
from fwnkf.native.compilers import c_compiler
from fwnkf.native.graph import Field, Graph, make_graph
from fwnkf.native.lowering import lower

pytestmark = [
    pytest.mark.export,
    pytest.mark.skipif(c_compiler() is None, reason="no C compiler (cc, gcc, clang) on this machine"),
]

small, large = torch.randn(3, 4, dtype=torch.float64), torch.randn(9, 11, dtype=torch.float64)
weight = torch.randn(11, 40, dtype=torch.float64)
sparse = torch.eye(9, dtype=torch.float64) + torch.diag(torch.tensor([0.5, -2.0, 0.1], dtype=torch.float64), 6)


def positive(x: Tensor) -> Tensor:
    return x @ x.mT + torch.eye(x.shape[-2], dtype=x.dtype)


FUNCTIONS = {
    "arithmetic": lambda x: (
        2 * x - x.mT.contiguous().mT / 3,
        -x,
        x.abs().sqrt(),
        (x * x + 1).rsqrt(),
        1 / (x.exp() + 1),
    ),
    "transcendental": lambda x: (x.sin() * x.cos(), x.tanh(), x.sigmoid(), (x.abs() + 1).log(), torch.atan2(x, x + 1)),
    "clamps": lambda x: (
        x.clamp(-0.5, 0.5),
        x.relu(),
        x.clamp_min(0.1),
        torch.minimum(x, -x),
        torch.nn.functional.elu(x),
        torch.nn.functional.softplus(x),
        torch.nn.functional.softplus(30 * x),
    ),
    "choices": lambda x: (torch.where(x > 0, x, 2 * x), torch.lerp(x, -x, (x > 0).to(x)), torch.round(3 * x)),
    "bits": lambda x: (
        (x * 9).round().long() & 6,
        ((x * 9).round().long() | 5) ^ 3,
        ~(x * 9).round().long(),
        torch.logical_and((x * 9).round().long(), 2 * (x > 0).long()).to(x),
        torch.logical_not((x * 2).round().long()).to(x),
        (~(x > 0)).to(x),
    ),
    "powers": lambda x: (x**2, x**3, x.abs() ** 0.5, (x.abs() + 1) ** 1.7, torch.remainder(x, 0.7)),
    "views": lambda x: (
        x.mT + 1,
        x[1:, ::2] * 2,
        x.unsqueeze(1).expand(-1, 2, -1) - 1,
        x.reshape(-1)[3:8],
        x[:, 1] * x[:, 2],
    ),
    "joins": lambda x: (torch.cat((x, 2 * x), -1), torch.stack((x, -x), 1), torch.nn.functional.pad(x, (1, 2, 0, 1))),
    "diagonals": lambda x: (
        torch.diag_embed(x[0]),
        torch.diag_embed(x[0], 1),
        x[:3, :3].diagonal() * 2,
        x.repeat(2, 3),
    ),
    "sums": lambda x: (x.sum(-1), x.mean(0), x.sum(), x.square().sum(0, keepdim=True), x.norm(dim=-1), x.amax(-1)),
    "softmax": lambda x: (x.softmax(-1), x.log_softmax(0), (x > 0).any(-1).to(x), (x > -9).all(0).to(x)),
    "places": lambda x: (x[:, [2, 0]], x.gather(1, x.argmax(-1, keepdim=True)), x.cumsum(1), x.cummax(1).values),
    "products": lambda x: (x @ x.mT, x.mT @ x, x @ x[0], torch.linalg.cross(x[:3, :3], x[:3, 1:4])),
    "factors": lambda x: (
        torch.linalg.cholesky_ex(positive(x))[0],
        torch.cholesky_solve(x, torch.linalg.cholesky_ex(positive(x))[0]),
        torch.linalg.solve_triangular(torch.linalg.cholesky_ex(positive(x))[0], x, upper=False),
        torch.linalg.matrix_exp(0.3 * positive(x)),
    ),
    "jacobian": lambda x: torch.func.vmap(torch.func.jacrev(lambda row: torch.sin(row) * row.sum()))(x),
}
LARGE_ONLY = {
    "dense product": lambda x: (torch.addmm(weight[0], x, weight), x[:1] @ weight, weight.mT @ x.mT),
    "sparse product": lambda x: (sparse @ x, x.mT @ sparse.mT, sparse @ (x @ x.mT) @ sparse.mT + sparse),
    "gates": lambda x: torch.sigmoid(x @ weight).chunk(2, -1)[0] * torch.tanh(x @ weight)[:, 20:],
}
CASES = [(name, f, x) for name, f in FUNCTIONS.items() for x in (small, large)]
CASES += [(name, f, large) for name, f in LARGE_ONLY.items()]


def flat(result: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(result) if isinstance(result, tuple) else (result,)


def batched(function: Callable[..., Any]) -> Callable[[Tensor], tuple[Tensor, ...]]:
    return lambda a: tuple(r.unsqueeze(0) for r in flat(function(a[0])))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """All functions in one file, compiled once."""
    folder: Path = tmp_path_factory.mktemp("operators")
    pool, functions = Pool(), []
    for number, (_, function, x) in enumerate(CASES):
        results = flat(function(x))
        outputs = tuple(Field(f"r{i}", tuple(r.shape), r.dtype) for i, r in enumerate(results))
        module = make_graph(batched(function), [x[None]])
        graph = Graph(module, (Field("x", tuple(x.shape), x.dtype),), outputs)
        lowered = lower(graph, {"x": "x"}, Builder(torch.float64, pool))
        made = body(lowered, [store(f"r[{i}]", value) for i, (_, value) in enumerate(lowered.results)])
        functions.append(
            f"void f{number}(const real *x, real **r);\nvoid f{number}(const real *x, real **r)\n{made.text}"
        )
    code = "\n".join(functions)
    constants = "".join(_constant(*item) for item in pool.entries.values() if re.search(rf"\b{item[0]}\b", code))
    head = "#include <math.h>\n#include <stdint.h>\ntypedef double real;\n"
    (folder / "all.c").write_text(head + preamble(code, double=True) + constants + code)
    call = [str(c_compiler()), *FLAGS, "-O1", "-shared", "-fPIC", "-o", "all.so", "all.c", "-lm"]
    done = subprocess.run(call, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:2000]
    return ctypes.CDLL(str(folder / "all.so"))


@pytest.mark.parametrize("number", range(len(CASES)), ids=[f"{name} {tuple(x.shape)}" for name, _, x in CASES])
def test_generated_c_equals_torch(library: ctypes.CDLL, number: int):
    """On other values than those it was traced with."""
    _, function, x = CASES[number]
    x = x.flip(0).contiguous()
    expected = [result.double().numpy() for result in flat(function(x))]
    found = [np.full(result.shape, np.nan) for result in expected]
    pointers = (ctypes.c_void_p * len(found))(*(item.ctypes.data for item in found))
    data = x.numpy()
    getattr(library, f"f{number}")(data.ctypes.data_as(ctypes.c_void_p), pointers)
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-11, atol=1e-12)
