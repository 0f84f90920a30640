"""Others that compute what ``engine.py`` measures: programs by hand, and the packages of ``fwnkf[kalman_rivals]``.

Each function returns one without arguments that computes a record anew, all of it in float64 and one thread, into
memory that is taken in every call, as that of a result must be.
"""

from __future__ import annotations

import ctypes
import functools
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from engine_cases import Array, Case, Inertial, Tracker

from fwnkf.evaluation.timing import interleave

FOLDER = Path(__file__).resolve().parent / "engine"
FLAGS = ("-O3", "-march=native", "-shared", "-fPIC")


class Result(NamedTuple):
    """What filters are compared by; None for what one does not return."""

    mean: Any
    cov: Any
    log_likelihood: Any
    innovation: Any = None


Run = Callable[[], Result]


class Approximate(NamedTuple):
    """A candidate that is inexact by a setting of its own: as it is used, and with that setting switched off.

    The first is timed. The second must agree with the others, which shows that both compute the same thing.
    """

    used: Callable[[], Any]
    exact: Callable[[], Any]

    def __call__(self) -> Any:
        return self.used()


def one_thread() -> None:
    """Before jax is imported: one thread for everything, as for torch; and float64."""
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax

    jax.config.update("jax_enable_x64", True)


# ---- by hand --------------------------------------------------------------------------------------------------------


@functools.cache
def compiled(source: str, *flags: str) -> Any:
    """A program of the folder as a library."""
    with tempfile.TemporaryDirectory() as made:
        library = Path(made) / "library.so"
        cpp = source.endswith(".cpp")
        call = ["g++", "-std=c++17", "-DNDEBUG", "-isystem", "/usr/include/eigen3"] if cpp else ["gcc", "-std=gnu99"]
        subprocess.run([*call, *FLAGS, *flags, "-o", library, FOLDER / source, "-lm"], check=True)
        return ctypes.CDLL(str(library))


def address(array: Array | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if array is None else array.ctypes.data)


def by_hand(function: Any, numbers: Array, y: Array, other: Array | None, size: int, tangent: int) -> Run:
    """A call of ``function(model, y, other, steps, mean, cov, innovation, log_likelihood)``."""
    y, other = np.ascontiguousarray(y), None if other is None else np.ascontiguousarray(other)
    steps, channels = y.shape

    def run() -> Result:
        outputs = np.empty((steps, size)), np.empty((steps, tangent, tangent)), np.empty((steps, channels)), np.empty(1)
        given = (*map(address, (numbers, y, other)), ctypes.c_long(steps), *map(address, outputs))
        function(*given)
        return Result(outputs[0], outputs[1], outputs[3][0], outputs[2])

    return run


def c_by_hand(case: Case) -> Run:
    """``kalman.c``, by the faster of two builds: with 8 or 16 states gcc 12 unrolls it to its harm."""
    n, m, tracker = len(case.F), len(case.H), case.tracker or Tracker()
    sizes = (f"-DN={n}", f"-DM={m}", *(["-DTRACKER"] if case.tracker else []))
    arrays = (case.F, case.Q, case.H, case.R, case.mean, case.cov, tracker.density, tracker.bias_std)
    numbers = np.concatenate([*(item.ravel() for item in arrays), [tracker.seconds]])
    builds = {
        name: partial(by_hand, compiled("kalman.c", *sizes, *flags).kalman_run, numbers)
        for name, flags in {"unrolled": (), "rolled": ("--param=max-completely-peeled-insns=0",)}.items()
    }
    few = slice(1000)
    short = None if case.dt is None else case.dt[few]
    taken = interleave(
        {name: build(case.y[few], short, n, n) for name, build in builds.items()}, 21, clock=time.process_time
    )
    return builds[min(taken, key=lambda name: taken[name])](case.y, case.dt, n, n)


def eigen_by_hand(name: str, case: Inertial) -> Run:
    """``attitude.cpp`` or ``strapdown.cpp``."""
    function = getattr(compiled(f"{name}.cpp"), f"{name}_run")
    return by_hand(function, case.numbers, case.y, case.u, len(case.mean), case.tangent)


# ---- dynamax --------------------------------------------------------------------------------------------------------


def without_boost(call: Callable[..., Any]) -> Callable[..., Any]:
    """A call in which dynamax adds nothing to the diagonal of what it inverts, if its first call traces it."""
    from dynamax.linear_gaussian_ssm import inference

    @functools.wraps(call)
    def changed(*arguments: Any) -> Any:
        kept = inference.psd_solve
        inference.psd_solve = functools.partial(kept, diagonal_boost=0.0)
        try:
            return call(*arguments)
        finally:
            inference.psd_solve = kept

    return changed


def dynamax_model(case: Case, values: Any = None) -> Any:
    """The parameters of a case, and the measurements.

    Where a value is missing, its row of ``H`` is zero and its measurement as well: the belief is that without it, and
    the likelihood has a known factor too much, see :func:`dynamax_excess`. ``F`` and ``Q`` of irregular steps are
    functions of time, computed within the compiled program.

    Args:
        case: model and record.
        values: what replaces numbers of the model in gradients: ``Q``, or the fields of a :class:`Tracker`.
    """
    import jax.numpy as jnp
    from dynamax.linear_gaussian_ssm.inference import make_lgssm_params

    missing = np.isnan(case.y)
    H = jnp.asarray(np.where(missing[..., None], 0.0, case.H) if missing.any() else case.H)
    y, R, F, Q = jnp.asarray(np.nan_to_num(case.y)), jnp.asarray(np.diag(case.R)), case.F, case.Q
    if case.tracker is not None:
        model, dt = case.tracker if values is None else values, jnp.asarray(case.dt)
        R = jnp.diag(jnp.asarray(model.R))
        F, Q = (lambda t: tracker_transition(model, dt[t])), (lambda t: tracker_noise(model, dt[t]))  # type: ignore[assignment]
    else:
        F, Q = jnp.asarray(F), jnp.asarray(Q) if values is None else values
    return make_lgssm_params(jnp.asarray(case.mean), jnp.asarray(case.cov), F, Q, H, R), y


def tracker_transition(model: Tracker, h: Any) -> Any:
    """``F`` of a step of a :class:`Tracker`, in jax."""
    import jax.numpy as jnp

    eye, none, decay = jnp.eye(3), jnp.zeros((3, 3)), jnp.exp(-h / model.seconds)
    rows = [[eye, h * eye, h * h / 2 * eye, none], [none, eye, h * eye, none], [none, none, eye, none]]
    return jnp.block([*rows, [none, none, none, decay * eye]])


def tracker_noise(model: Tracker, h: Any) -> Any:
    """``Q`` of a step of a :class:`Tracker`, in jax."""
    import jax.numpy as jnp

    none, decay = jnp.zeros((3, 3)), jnp.exp(-h / model.seconds)
    q, bias = jnp.diag(jnp.asarray(model.density)), jnp.diag(jnp.asarray(model.bias_std) ** 2)
    rows = [
        [h**5 / 20 * q, h**4 / 8 * q, h**3 / 6 * q, none],
        [h**4 / 8 * q, h**3 / 3 * q, h**2 / 2 * q, none],
        [h**3 / 6 * q, h**2 / 2 * q, h * q, none],
        [none, none, none, (1 - decay**2) * bias],
    ]
    return jnp.block(rows)


def dynamax_excess(case: Case, R: Any = None) -> Any:
    """What the log-likelihood of :func:`dynamax_model` has too much: that of zeros where values are missing."""
    import jax.numpy as jnp

    return -0.5 * (np.isnan(case.y).sum(0) * jnp.log(2 * jnp.pi * (case.R if R is None else R))).sum()


def dynamax_filter(case: Case, smooth: bool = False) -> Run:
    """``lgssm_filter`` or ``lgssm_smoother``, compiled; model and record are arguments of the compiled program."""
    import jax
    from dynamax.linear_gaussian_ssm import inference

    function = inference.lgssm_smoother if smooth else inference.lgssm_filter
    params, y = dynamax_model(case)
    excess = dynamax_excess(case)

    def compiled_run() -> Run:
        if case.tracker is None:
            call = jax.jit(lambda params, y: function(params, y))
        else:  # functions of time are no arguments of a compiled program
            call = jax.jit(lambda _, y: function(params, y))
        given = params if case.tracker is None else None

        def run() -> Result:
            found = jax.block_until_ready(call(given, y))
            if smooth:
                return Result(found.smoothed_means, found.smoothed_covariances, found.marginal_loglik - excess)
            return Result(found.filtered_means, found.filtered_covariances, found.marginal_loglik - excess)

        return run

    return Approximate(compiled_run(), without_boost(compiled_run()))


def dynamax_batch(case: Case, y: Array) -> Run:
    """Records of one model, by ``vmap``."""
    import jax
    import jax.numpy as jnp
    from dynamax.linear_gaussian_ssm.inference import lgssm_filter

    params, _ = dynamax_model(case)
    given = jnp.asarray(y)

    def compiled_run() -> Run:
        call = jax.jit(lambda params, y: jax.vmap(lgssm_filter, in_axes=(None, 0))(params, y))

        def run() -> Result:
            found = jax.block_until_ready(call(params, given))
            return Result(found.filtered_means, found.filtered_covariances, found.marginal_loglik)

        return run

    return Approximate(compiled_run(), without_boost(compiled_run()))


def dynamax_gradient(case: Case, raw: Sequence[Array]) -> Callable[[], tuple[Any, Any]]:
    """The log-likelihood and its gradient in raw parameters, mapped to the model as those of this library are.

    Args:
        case: model and record.
        raw: ``log_std`` and ``slopes`` of ``Q``, or the raw values of density, bias_std, seconds and variances.
    """
    import jax
    import jax.numpy as jnp
    from dynamax.linear_gaussian_ssm.inference import lgssm_filter

    def clamped(value: Any, limit: float) -> Any:
        return limit * jnp.tanh(value / limit)

    def likelihood(raw: Sequence[Any]) -> Any:
        if case.tracker is None:
            log_std, slopes = raw
            below = jnp.zeros((4, 4)).at[jnp.tril_indices(4, -1)].set(clamped(slopes, 30.0)) + jnp.eye(4)
            unit = below / jnp.linalg.norm(below, axis=-1, keepdims=True)
            factor = unit * jnp.exp(clamped(log_std, 20.0))[:, None]
            params, y = dynamax_model(case, factor @ factor.T)
            return lgssm_filter(params, y).marginal_loglik
        density, bias_std, seconds, variances = (jnp.exp(clamped(value, 20.0)) for value in raw)
        model = case.tracker._replace(density=density, bias_std=bias_std, seconds=seconds, R=variances)
        params, y = dynamax_model(case, model)
        return lgssm_filter(params, y).marginal_loglik - dynamax_excess(case, variances)

    given = tuple(map(jnp.asarray, raw))

    def compiled_run() -> Callable[[], tuple[Any, Any]]:
        call = jax.jit(jax.value_and_grad(lambda raw: likelihood(raw)))
        return lambda: jax.block_until_ready(call(given))

    return Approximate(compiled_run(), without_boost(compiled_run()))


# ---- other packages -------------------------------------------------------------------------------------------------


def statsmodels_filter(case: Case) -> Run:
    """``KalmanFilter`` with its defaults: compiled code, which stops computing covariances where they converged."""
    from statsmodels.tsa.statespace.kalman_filter import KalmanFilter

    n, m = len(case.F), len(case.H)

    def built(**options: float) -> Run:
        model = KalmanFilter(k_endog=m, k_states=n, k_posdef=n, **options)
        model.bind(case.y)
        model["transition"], model["selection"], model["state_cov"] = case.F, np.eye(n), case.Q
        model["design"], model["obs_cov"] = case.H, np.diag(case.R)
        model.initialize_known(case.mean, case.cov)

        def run() -> Result:
            found = model.filter()
            mean, cov = found.filtered_state.T, found.filtered_state_cov.transpose(2, 0, 1)
            return Result(mean, cov, found.llf_obs.sum(), found.forecasts_error.T)

        return run

    return Approximate(built(), built(tolerance=0.0))


def simdkalman_batch(case: Case, y: Array) -> Run:
    import simdkalman

    model = simdkalman.KalmanFilter(case.F, case.Q, case.H, np.diag(case.R))
    constant = 0.5 * y[0].size * np.log(2 * np.pi)  # which its log-likelihood leaves out
    options: dict[str, Any] = {"smoothed": False, "filtered": True, "observations": False, "log_likelihood": True}

    def run() -> Result:
        found = model.compute(y, 0, initial_value=case.mean, initial_covariance=case.cov, **options)
        return Result(found.filtered.states.mean, found.filtered.states.cov, found.log_likelihood - constant)

    return run


def cuthbert_filter(case: Case, parallel: bool = False) -> Run:
    """The square-root filter of a regular record, sequential or by an associative scan, compiled."""
    import jax
    import jax.numpy as jnp
    from cuthbert import filtering
    from cuthbert.gaussian import kalman

    F, H = jnp.asarray(case.F), jnp.asarray(case.H)
    Q, R, P = (jnp.asarray(np.linalg.cholesky(item)) for item in (case.Q, np.diag(case.R), case.cov))

    def dynamics(t: Any) -> Any:
        # the belief is that at the first measurement, whose step moves nothing
        return jnp.where(t == 0, jnp.eye(len(F)), F), jnp.zeros(len(F)), jnp.where(t == 0, 0 * Q, Q)

    def run_all(y: Any) -> Any:
        def observed(t: Any) -> Any:
            return H, jnp.zeros(len(H)), R, y[t]

        model = kalman.build_filter(jnp.asarray(case.mean), P, dynamics, observed)
        found = filtering.filter(model, jnp.arange(len(y)), model.init_prepare(), parallel=parallel)
        factor = found.chol_cov[1:]
        return found.mean[1:], factor @ factor.mT, found.log_normalizing_constant[-1]

    call, y = jax.jit(run_all), jnp.asarray(case.y)
    return lambda: Result(*jax.block_until_ready(call(y)))


def filterpy_filter(case: Case) -> Run:
    """``KalmanFilter``, step by step in NumPy."""
    from filterpy.kalman import KalmanFilter

    def run() -> Result:
        model = KalmanFilter(dim_x=len(case.F), dim_z=len(case.H))
        model.F, model.Q, model.H, model.R = case.F, case.Q, case.H, np.diag(case.R)
        model.x, model.P = case.mean.copy(), case.cov.copy()
        mean, cov, innovation = np.empty((len(case.y), len(case.F))), np.empty((len(case.y), *case.F.shape)), case.y * 0
        total = 0.0
        for t, y in enumerate(case.y):
            if t > 0:
                model.predict()
            model.update(y)
            mean[t], cov[t], innovation[t] = model.x, model.P, model.y
            total += model.log_likelihood
        return Result(mean, cov, total, innovation)

    return run


# ---- our own exported step ------------------------------------------------------------------------------------------


def step_in_c(model: Any, y: Array) -> Run:
    """The step that ``fwnkf export --to c`` writes for a filter, called in a loop in C that keeps its outputs."""
    import torch
    from export import Generated

    folder = Path(tempfile.mkdtemp())
    made = Generated("step", model, folder, torch.float64)
    (folder / "loop.c").write_text(f"""\
#include <string.h>
#include "step.c"
void run(const void *unused, const real *y, const real *u, long steps, real *mean, real *cov, real *innovation,
         real *log_likelihood)
{{
    step_state state;
    step_output out;
    const real dt = {model.nominal_step!r};
    const real *given = y;
    (void)unused, (void)u, (void)dt, (void)log_likelihood;
    step_init(&state);
    for (long t = 0; t < steps; ++t) {{
        y = given + t * {made.channels};
        step_step({made.arguments("dt")});
        memcpy(mean + t * (sizeof out.mean / sizeof *mean), out.mean, sizeof out.mean);
        memcpy(cov + t * (sizeof out.cov / sizeof *cov), out.cov, sizeof out.cov);
        memcpy(innovation + t * {made.channels}, out.innovation, sizeof out.innovation);
    }}
}}
""")
    library = folder / "loop.so"
    subprocess.run(["gcc", "-std=gnu99", *FLAGS, "-o", library, "loop.c", "-lm"], cwd=folder, check=True)
    size, tangent = model.layout.size, model.layout.tangent_size
    run = by_hand(ctypes.CDLL(str(library)).run, np.zeros(1), y, None, size, tangent)
    return lambda: run()._replace(log_likelihood=None)
