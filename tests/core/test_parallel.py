"""Filters over all steps at once, beside a plain recursion in float64 that is written here, filterpy and the loop."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import fwnkf
from fwnkf.core import parallel
from fwnkf.core.gaussian import DiagonalNoise, FullNoise, Noise, dense, log_prob
from fwnkf.core.linear_run import LinearRun, LinearTrack
from fwnkf.core.parallel import filter_scan
from fwnkf.core.parallel_smoothing import SmoothedTrack, smooth_scan
from fwnkf.core.smoothing import LinearStep, Measurement, end, factorize, fixed_interval

WAYS = {
    "chosen": filter_scan,
    "chunks": lambda run: parallel._completed(run, parallel._chunked(run)),
    "tree": lambda run: parallel._completed(run, parallel._tree(run)),
    "square root": lambda run: filter_scan(run, square_root=True),
}
ATOL = 1e-10
"""Beside a recursion in float64: values are of size one, and a thousand steps round."""


def problem(
    n: int = 3,
    m: int = 2,
    batch: int = 2,
    steps: int = 40,
    *,
    missing: float = 0.0,
    lengths: int = 1,
    shift: bool = False,
    predicts_first: bool = True,
    one_prior: bool = True,
    full_noise: bool = False,
    seed: int = 0,
) -> LinearRun:
    """A drawn model with ``lengths`` different steps."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    drift, root = draw(n, n) - 2 * torch.eye(n), draw(n, n)
    dt = 0.05 * (1 + torch.arange(lengths, dtype=torch.float64))[:, None, None]
    F, Q = torch.linalg.matrix_exp(drift * dt), (root @ root.mT + 0.1 * torch.eye(n)) * dt
    factor, noise_factor = draw(batch, n, n), draw(m, m)
    cov = factor @ factor.mT + torch.eye(n)
    noise: Noise = DiagonalNoise(0.3 + draw(m).square())
    if full_noise:
        noise = FullNoise(noise_factor @ noise_factor.mT + 0.3 * torch.eye(m))
    weight = (torch.rand(batch, steps, m, generator=generator) >= missing).double()
    return LinearRun(
        F,
        Q,
        draw(m, n),
        noise,
        2 * draw(batch, steps, m) * weight,
        weight,
        draw(batch, n),
        cov[:1].expand_as(cov) if one_prior else cov,
        torch.randint(0, lengths, (batch, steps), generator=generator) if lengths > 1 else None,
        draw(batch, steps, n) if shift else None,
        predicts_first,
    )


def plainly(run: LinearRun) -> dict[str, np.ndarray]:
    """The Kalman filter of the textbook in float64 numpy, one record and one step at a time; rows that are missing are
    taken out."""
    as_numpy = {
        name: item.double().numpy() if isinstance(item, Tensor) and item.is_floating_point() else item
        for name, item in run._asdict().items()
    }
    F, Q, H, y = (as_numpy[name] for name in "FQHy")
    R, n = dense(run.R).double().numpy(), run.F.shape[-1]
    found: dict[str, list] = {name: [] for name in LinearTrack._fields[:7]}
    for k in range(len(y)):
        x, P, rows = as_numpy["mean"][k], as_numpy["cov"][k], []
        for t in range(y.shape[1]):
            which = 0 if run.kind is None else int(run.kind[k, t])
            if t or run.predicts_first:
                x, P = F[which] @ x, F[which] @ P @ F[which].T + Q[which]
                x = x if run.shift is None else x + as_numpy["shift"][k, t]
            there = np.flatnonzero(as_numpy["weight"][k, t])
            h, r, innovation = H[there], R[np.ix_(there, there)], np.zeros(len(H))
            S = h @ P @ h.T + r
            innovation[there] = e = y[k, t, there] - h @ x
            K = P @ h.T @ np.linalg.inv(S)
            density = -0.5 * (e @ np.linalg.solve(S, e) + np.linalg.slogdet(2 * np.pi * S)[1])
            IKH = np.eye(n) - K @ h
            after, cov = x + K @ e, IKH @ P @ IKH.T + K @ r @ K.T
            rows.append((after, cov, x, P, innovation, H @ P @ H.T + R, density))
            x, P = after, cov
        for name, items in zip(found, zip(*rows, strict=True), strict=True):
            found[name].append(np.stack(items))
    return {name: np.stack(items) for name, items in found.items()}


def agrees(track: LinearTrack, run: LinearRun, atol: float = ATOL) -> None:
    for name, expected in plainly(run).items():
        np.testing.assert_allclose(getattr(track, name).numpy(), expected, atol=atol, rtol=atol, err_msg=name)
    assert track.ok.all()
    assert track.precise.all()


CASES = {
    "regular": {},
    "regular, controls": {"shift": True},
    "regular, held": {"predicts_first": False, "shift": True},
    "regular, priors of their own": {"one_prior": False, "batch": 3},
    "missing": {"missing": 0.3},
    "missing, held": {"missing": 0.3, "predicts_first": False, "shift": True},
    "irregular": {"lengths": 4},
    "irregular, missing, controls": {"lengths": 4, "missing": 0.4, "shift": True, "predicts_first": False},
    "full noise": {"missing": 0.3, "full_noise": True},
    "many channels": {"m": 6, "n": 4, "missing": 0.3, "full_noise": True},
    "one channel": {"m": 1, "n": 2, "missing": 0.3},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", CASES)
def test_agrees_with_the_recursion(case: str, way: str) -> None:
    run = problem(**CASES[case])
    agrees(WAYS[way](run), run)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("steps", [1, 2, 3, 17, 1000])
@pytest.mark.parametrize("predicts_first", [True, False])
def test_agrees_for_any_number_of_steps(steps: int, way: str, predicts_first: bool) -> None:
    for options in ({}, {"missing": 0.3, "lengths": 2}):
        run = problem(steps=steps, batch=1, predicts_first=predicts_first, **options)
        agrees(WAYS[way](run), run)


# ---- models that are hard -------------------------------------------------------------------------------------------


def changed(name: str, **options) -> LinearRun:
    """A drawn model of which one thing is singular."""
    run = problem(n=4, steps=300, **options)
    n = 4
    if name == "singular Q":
        return run._replace(Q=run.Q * torch.diag(torch.tensor([0.0, 0, 1, 1])).double())
    if name == "no Q":
        return run._replace(Q=torch.zeros_like(run.Q))
    if name == "singular F":
        return run._replace(F=run.F @ torch.diag(torch.tensor([1.0, 1, 0, 1])).double())
    if name == "F zero":
        return run._replace(F=torch.zeros_like(run.F))
    if name == "unobservable":
        F = torch.block_diag(torch.tensor([[0.9, 0.1], [0.0, 0.8]]), torch.tensor([[0.6, 0.8], [-0.8, 0.6]]))
        H = torch.cat((run.H[:, :2], torch.zeros(2, 2)), -1)
        return run._replace(F=F.double().expand_as(run.F), H=H)
    if name == "turning":  # an oscillation that nothing damps, drives or measures comes back
        F = torch.block_diag(torch.tensor([[0.9, 0.1], [0.0, 0.8]]), torch.tensor([[0.0, 1.0], [-1.0, 0.0]]))
        H = torch.cat((run.H[:, :2], torch.zeros(2, 2)), -1)
        return run._replace(F=F.double().expand_as(run.F), H=H, Q=run.Q * torch.diag(torch.tensor([1.0, 1, 0, 0])))
    if name == "unstable":
        F = torch.diag(torch.tensor([1.02, 1.05, 0.9, 1.0])).double() + 0.05 * torch.ones(n, n).triu(1)
        return run._replace(F=F.expand_as(run.F))
    if name == "diffuse prior":
        return run._replace(cov=1e6 * run.cov)
    if name == "prior known":
        return run._replace(cov=torch.zeros_like(run.cov))
    assert name == "nothing for a while"
    weight = run.weight.clone()
    weight[:, 50:170] = 0
    weight[:, :3] = 0
    return run._replace(weight=weight, y=run.y * weight)


HARD = [
    "singular Q",
    "no Q",
    "singular F",
    "F zero",
    "unobservable",
    "turning",
    "unstable",
    "diffuse prior",
    "prior known",
    "nothing for a while",
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", HARD)
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_agrees_where_something_is_singular(name: str, way: str, missing: float) -> None:
    run = changed(name, missing=missing)
    track = WAYS[way](run)
    for item, expected in plainly(run).items():
        scale = 1 + np.abs(expected).max() if item in ("mean", "prior_mean", "innovation") else 1.0
        np.testing.assert_allclose(
            getattr(track, item).numpy(), expected, atol=1e-8 * scale, rtol=1e-7, err_msg=f"{item}, {name}"
        )
    assert track.ok.all()


def test_a_slow_line_settles_in_few_steps_of_doubling() -> None:
    """Poles of radius 0.9999: tens of thousands of steps, each with its own gain, agree with the recursion."""
    angle, radius = 0.3, 0.9999
    turn = torch.tensor([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    run = problem(n=2, m=1, batch=1, steps=20_000)
    run = run._replace(F=(radius * turn).unsqueeze(0), Q=1e-6 * torch.eye(2).double().unsqueeze(0))
    agrees(filter_scan(run), run, atol=1e-8)
    covs = parallel.settling(run.F[0], run.H, run.Q[0], run.R, run.cov, 10**6)
    assert covs.shape[1] < 50_000


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("missing", [0.0, 0.1])
def test_an_unstable_state_that_nothing_drives_is_that_of_the_recursion(way: str, missing: float) -> None:
    """Elements of many steps grow as 1.01ᵗ, and lose what the recursion keeps; the check of their ends must find it."""
    run = problem(n=2, m=1, batch=1, steps=2000, missing=missing)
    F, H = torch.tensor([[[1.01, 0.1], [0.0, 0.9]]]).double(), torch.tensor([[1.0, 0.0]]).double()
    run = run._replace(F=F, H=H, Q=torch.zeros(1, 2, 2).double(), y=0 * run.y, mean=0 * run.mean)
    expected = plainly(run)["cov"]
    std = np.sqrt(np.diagonal(expected, axis1=-2, axis2=-1))
    found = np.sqrt(np.diagonal(WAYS[way](run).cov.numpy(), axis1=-2, axis2=-1))
    np.testing.assert_allclose(found[..., 0], std[..., 0], rtol=1e-6)


def test_a_covariance_that_cannot_be_factored_is_said() -> None:
    run = problem(missing=0.2)
    for way, function in WAYS.items():
        track = function(run._replace(R=DiagonalNoise(-1e3 * torch.ones(2).double())))
        assert not track.ok.all(1).any(), way


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_covariances_are_symmetric_and_positive(way: str, dtype: torch.dtype, missing: float) -> None:
    """Accurate sensors beside a diffuse prior, and states of very different sizes."""
    run = problem(n=5, m=2, steps=200, missing=missing)
    size = torch.tensor([1e-2, 1.0, 1e2, 1.0, 10.0]).double()
    run = run._replace(
        F=run.F * (size[:, None] / size), Q=1e-6 * run.Q * size * size[:, None], H=run.H / size, cov=100 * run.cov
    )
    run = single(run._replace(R=DiagonalNoise(1e-3 * torch.ones(2).double())), dtype)
    track = WAYS[way](run)
    smoothed = smooth_scan(run, track)
    for cov in (track.cov, track.prior_cov, track.innovation_cov, smoothed.cov):
        torch.testing.assert_close(cov, cov.mT, rtol=0, atol=0)
        diagonal = torch.diagonal(cov, dim1=-2, dim2=-1)
        assert (diagonal >= 0).all()
        scale = diagonal.clamp_min(torch.finfo(dtype).tiny).rsqrt()
        correlation = cov * (scale.unsqueeze(-1) * scale.unsqueeze(-2))
        assert torch.linalg.eigvalsh(correlation.double()).min() > -100 * torch.finfo(dtype).eps


def single(run: LinearRun, dtype: torch.dtype) -> LinearRun:
    def cast(item):
        return item.to(dtype) if isinstance(item, Tensor) and item.is_floating_point() else item

    noise = type(run.R)(*(cast(item) for item in run.R))
    return LinearRun(*(cast(item) for item in run._replace(R=None)))._replace(R=noise)  # type: ignore[arg-type]


# ---- smoothing ------------------------------------------------------------------------------------------------------


def smoothed_by_factors(run: LinearRun, track: LinearTrack) -> SmoothedTrack:
    """The smoother of :mod:`fwnkf.core.smoothing`, by orthogonal matrices, which inverts no covariance."""
    F, Q = parallel._matrices(run)
    batch, steps, _ = run.y.shape
    noise = FullNoise(dense(run.R).expand(batch, steps, -1, -1))
    measured = Measurement(track.innovation, run.H.expand(batch, steps, -1, -1), noise, run.weight, track.ok)
    step = LinearStep(F, Q, measured, track.mean - track.prior_mean, track.mean)
    root = torch.linalg.eigh(run.cov)
    start = root.eigenvectors * root.eigenvalues.clamp_min(0).sqrt().unsqueeze(-2)
    factors, links = factorize(start, step)
    later = type(links)(*(item[:, 1:] for item in links))
    z = fixed_interval(later, end(factors[:, -1]))
    cross = factors[:, :-1] @ later.gain @ z.cov[:, 1:] @ factors[:, 1:].mT
    return SmoothedTrack(track.mean + (factors @ z.mean.unsqueeze(-1)).squeeze(-1), factors @ z.cov @ factors.mT, cross)


@pytest.mark.parametrize("case", CASES)
def test_the_smoother_is_that_of_orthogonal_matrices(case: str) -> None:
    run = problem(**CASES[case])
    smooths(run)


@pytest.mark.parametrize("steps", [1, 2, 3, 400])
def test_the_smoother_of_any_number_of_steps(steps: int) -> None:
    for options in ({}, {"missing": 0.3, "lengths": 2}):
        smooths(problem(steps=steps, **options))


@pytest.mark.parametrize("name", HARD)
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_the_smoother_where_something_is_singular(name: str, missing: float) -> None:
    if name == "unstable":
        pytest.skip("numbers grow to 1e6, where agreement is relative")
    # without noise, states decay and covariances beside larger ones are rounding; factors hold them
    smooths(changed(name, missing=missing), 1e-2 if name == "no Q" else 1e-6)


def smooths(run: LinearRun, atol: float = 1e-9) -> None:
    track = filter_scan(run)
    for item, expected in zip(smooth_scan(run, track), smoothed_by_factors(run, track), strict=True):
        torch.testing.assert_close(item, expected, atol=atol, rtol=atol)


# ---- gradients ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", [way for way in WAYS if way != "square root"])
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_gradients_are_those_of_finite_differences(way: str, missing: float) -> None:
    run = problem(n=2, m=1, batch=1, steps=17, missing=missing, shift=True, predicts_first=False)

    def value(F, Q, H, variance, y, mean, cov, shift):
        given = run._replace(F=F, Q=(Q + Q.mT) / 2, H=H, R=DiagonalNoise(variance), y=y * run.weight, mean=mean)
        given = given._replace(cov=(cov + cov.mT) / 2, shift=shift)
        track = WAYS[way](given)
        smoothed = smooth_scan(given, track)
        return track.log_density.sum(), track.mean.square().sum(), track.cov.sum(), smoothed.cov.sum(), smoothed.mean

    assert isinstance(run.R, DiagonalNoise)
    given = (run.F, run.Q, run.H, run.R.variance, run.y, run.mean, run.cov, run.shift)
    inputs = [item.clone().requires_grad_() for item in given if item is not None]
    assert torch.autograd.gradcheck(value, inputs, atol=1e-5, fast_mode=True)


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_gradients_are_those_of_the_loop(missing: float) -> None:
    run = problem(n=3, m=2, steps=60, missing=missing, predicts_first=False)
    model = fwnkf.KF(F=run.F[0], H=run.H, Q=run.Q[0], R=dense(run.R), learn=("F", "H", "Q", "R"))
    parameters = list(model.parameters())
    prior = fwnkf.Gaussian(run.mean, run.cov)
    by_loop = model.run(run.y, mask=run.weight > 0, prior=prior)
    matrices = model.prepare()
    given = run._replace(F=matrices.F.unsqueeze(0), Q=matrices.Q.unsqueeze(0), H=matrices.H, R=matrices.R)
    track = filter_scan(given)
    torch.testing.assert_close(track.mean, by_loop.mean, atol=ATOL, rtol=ATOL)
    density, _ = log_prob(by_loop.innovation, by_loop.innovation_cov, run.weight)
    torch.testing.assert_close(track.log_density, density, atol=ATOL, rtol=ATOL)
    ours, theirs = (torch.autograd.grad(item.sum(), parameters) for item in (track.log_density, density))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, atol=1e-8, rtol=1e-8)


def test_gradients_of_parts_that_are_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    run = problem(n=3, m=2, steps=60, missing=0.2, lengths=2, predicts_first=False, shift=True)
    F = run.F.clone().requires_grad_()
    whole = filter_scan(run._replace(F=F)).log_density.sum()
    monkeypatch.setattr(parallel, "RECORDED", 18 * 25)
    parts = filter_scan(run._replace(F=F)).log_density.sum()
    torch.testing.assert_close(*(torch.autograd.grad(item, F)[0] for item in (parts, whole)), atol=1e-9, rtol=1e-9)


# ---- other dtypes and devices ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_single_precision_is_near_double(way: str, missing: float) -> None:
    run = problem(n=4, steps=500, missing=missing)
    one, two = WAYS[way](single(run, torch.float32)), WAYS["chunks"](run)
    std = torch.diagonal(two.cov, dim1=-2, dim2=-1).sqrt()
    assert ((one.mean - two.mean).abs() / std).max() < 1e-3
    torch.testing.assert_close(one.cov.double(), two.cov, atol=1e-5, rtol=1e-3)
    assert one.mean.dtype == one.log_density.dtype == torch.float32


def test_factors_hold_in_single_precision_what_covariances_do_not() -> None:
    """A prior of 100 and two nearly equal sensors with a noise of 0.003."""
    run = problem(n=3, m=2, batch=1, steps=30, missing=0.1)
    rows = torch.tensor([[1.0, 0.0, 1.0], [1.0, 1e-3, 1.0]]).double()
    run = run._replace(H=rows, Q=1e-6 * run.Q, cov=1e4 * run.cov, R=DiagonalNoise(1e-5 * torch.ones(2).double()))
    expected = plainly(run)
    std = np.sqrt(np.diagonal(expected["cov"], axis1=-2, axis2=-1))
    error = {}
    for way in ("chunks", "square root"):
        track = WAYS[way](single(run, torch.float32))
        found = np.sqrt(np.clip(np.diagonal(track.cov.double().numpy(), axis1=-2, axis2=-1), 0, None))
        error[way] = np.abs(found / std - 1).max()
        if way == "chunks":
            assert not track.precise.all()
    assert error["square root"] < 0.02
    assert error["chunks"] > 10 * error["square root"]


def on_meta(run: LinearRun) -> LinearRun:
    def move(item):
        return item.to("meta") if isinstance(item, Tensor) else item

    return LinearRun(*(move(item) for item in run._replace(R=None)))._replace(R=type(run.R)(*map(move, run.R)))


def test_shapes_without_data() -> None:
    run = problem(missing=0.3, lengths=3, shift=True)
    track = filter_scan(run)
    without = filter_scan(on_meta(run))
    assert [item.shape for item in without] == [item.shape for item in track]
    expected, found = smooth_scan(run, track), smooth_scan(on_meta(run), without)
    assert [item.shape for item in found] == [item.shape for item in expected]


class Counted(TorchDispatchMode):
    """Counts the operations that are more than a view."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        self.count += not function.is_view
        return function(*arguments, **(keywords or {}))


def operations(steps: int) -> int:
    run = on_meta(problem(n=4, steps=2, batch=1, missing=0.2, lengths=2))
    sizes = {
        name: getattr(run, name)[:, :1].expand(1, steps, *getattr(run, name).shape[2:]) for name in ("y", "weight")
    }
    with Counted() as counted:
        filter_scan(run._replace(kind=torch.zeros(1, steps, dtype=torch.long, device="meta"), **sizes))
    return counted.count


def test_the_number_of_operations_of_the_tree_grows_with_the_logarithm() -> None:
    counts = [operations(2**k) for k in (8, 10, 12, 14)]
    first, *rest = np.diff(counts)
    assert all(step == first for step in rest)
    assert first < 400


@pytest.mark.slow
def test_it_can_be_traced_by_the_compiler() -> None:
    for options in ({}, {"missing": 0.3, "lengths": 2}):
        run = problem(batch=1, steps=30, **options)
        agrees(torch.compile(filter_scan, backend="eager")(run), run)
