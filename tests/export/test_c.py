"""Exported filters against the filters in float64, and what their C must withstand."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

import fwnkf
from fwnkf.cli import main
from fwnkf.errors import ConfigError
from fwnkf.export import c_parity
from fwnkf.export.c import export_c
from fwnkf.export.c_source import generate
from fwnkf.export.reference import Record
from fwnkf.export.rounding import rounded
from fwnkf.export.trace import trace
from fwnkf.filters import with_solve
from fwnkf.identify.channels import ChannelModel, Line, channels_filter
from fwnkf.native.compilers import c_compiler
from fwnkf.systems import LearnedSystem
from fwnkf.types import Gaussian

from ..conformance.cases import CASES, shake
from ..tolerances import assert_close

pytestmark = [
    pytest.mark.export,
    pytest.mark.skipif(c_compiler() is None, reason="no C compiler (cc, gcc, clang) on this machine"),
]
QUICK = ("kf-cholesky", "adaptive", "fwnkf-paper")
"""Cases of the conformance suite that are exported in every run of the tests; the others are slow."""
OUT_OF_RANGE = ("rotation", "level-each", "hypotheses", "hypotheses-levels", "hypotheses-onsets")
"""Random parameters with which float32 in PyTorch is as far from float64; compared in double precision only."""
STEPS = {"rotation": 20, "everything": 200}
"""Of random parameters that make a filter amplify roundings, as the filter itself does after another rounding."""
IN_DOUBLE = ("dido-attitude", "uipdb", "euroc-strict")
"""Trained filters whose float32 in PyTorch is as far from float64 on drawn inputs; compared in double precision."""
MODELS = sorted(path.parent for path in Path("models").glob("*/config.json"))
STRICT = ("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror")


def run(*words: str | Path, folder: Path) -> str:
    done = subprocess.run([str(word) for word in words], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(map(str, words))}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    export_c(CASES["fwnkf-paper"].build(torch.float32), folder, "paper", steps=0, measure=False)
    return folder


@pytest.mark.parametrize("weights", ["int16", "int8"])
def test_weights_are_stored_as_integers_and_the_c_equals_the_rounded_filter(weights: str, tmp_path: Path):
    system = LearnedSystem.of(state_dim=3, observation_dim=2)
    model = fwnkf.FWNKF(system, encoder=fwnkf.GRU(24), transition=fwnkf.LocallyLinear(), phi=fwnkf.Phi())
    plain = generate(trace(model, torch.float32), "plain")
    facts = export_c(model, tmp_path, "rounded", steps=50, measure=False, weights=weights)
    text = (tmp_path / "rounded.c").read_text()
    recurrent = 3 * 24 * 24  # entries; the other matrices are smaller
    bits = int(weights.removeprefix("int"))
    assert f"static const {weights}_t" in text
    assert plain.constant_bytes - facts["constants"] >= recurrent * (4 - bits / 8)
    assert facts["parity"]["ok"], facts["parity"]
    weight = model.encoder.cells[0].weight_hh.detach()
    step = weight.abs().max() / (2 ** (bits - 1) - 1)
    kept = rounded(model, weights)[0].encoder.cells[0].weight_hh.detach()
    assert_close(kept / step, (weight / step).round(), "algebra")
    assert not torch.equal(kept, weight)


def test_rounded_weights_are_for_single_precision(tmp_path: Path):
    model = CASES["fwnkf-paper"].build(torch.float32)
    with pytest.raises(ConfigError, match="single precision"):
        export_c(model, tmp_path, precision="double", weights="int8")
    with pytest.raises(ConfigError, match="wanted one of float, int16, int8"):
        export_c(model, tmp_path, weights="float16")


def test_a_filter_that_follows_the_level_of_its_noise_exports(tmp_path: Path):
    """As ``fwnkf diagnose --fix`` makes it."""
    channel = ChannelModel(rate=100.0, drive=4.0, decay=1.0, white=0.01, lines=(Line(20.0, 1.0, 0.5),))
    model = channels_filter([channel], ["gyro_x"], level_seconds=0.9)
    assert model.config.level == fwnkf.Level(seconds=0.9, of="all")
    parity = export_c(model, tmp_path, steps=50, measure=False)["parity"]
    assert parity["ok"], parity


def test_parts_export_together(tmp_path: Path):
    """Lines, a drift, a level for each of them, an encoder and a residual in one filter."""
    system = fwnkf.systems.ConstantVelocity(fwnkf.systems.ConstantVelocityConfig(dims=1, dt=0.01))
    noise = [fwnkf.Lines(hz=23.0, std=0.3), fwnkf.Drift(seconds=5.0, std=0.1)]
    learned = {"encoder": fwnkf.GRU(4), "residual": fwnkf.MLP(4)}
    model = shake(fwnkf.FWNKF(system, noise=noise, level=fwnkf.Level(of="each"), **learned), 0.02)
    parity = export_c(model, tmp_path, steps=50, measure=False)["parity"]
    assert parity["ok"], parity


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in QUICK else pytest.mark.slow) for n in CASES])
@pytest.mark.parametrize("precision", ["float", pytest.param("double", marks=pytest.mark.slow)])
def test_every_filter_exports_and_equals_itself_in_float64(name: str, precision: str, tmp_path: Path):
    if precision == "float" and name in OUT_OF_RANGE:
        pytest.skip("the state leaves the range of float32")
    model, steps = CASES[name].build(torch.float32), STEPS.get(name, 100)
    parity = export_c(model, tmp_path, precision=precision, steps=steps, measure=False)["parity"]
    assert parity["ok"], parity


@pytest.mark.slow
@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.name)
def test_every_trained_filter_exports(path: Path, tmp_path: Path):
    precision = "double" if path.name in IN_DOUBLE else "float"
    parity = export_c(fwnkf.load(path), tmp_path, precision=precision, steps=10_000, measure=False)["parity"]
    assert parity["ok"], parity


def test_a_recording_is_compared_from_its_own_prior(tmp_path: Path, generator: torch.Generator):
    y, u = torch.randn(20, 3, generator=generator), torch.randn(20, 3, generator=generator)
    prior = fwnkf.Gaussian(torch.tensor([0.6, 0.0, 0.8, 0.0, 0.1, 0.2, 0.3]), torch.diag(torch.linspace(0.1, 2.0, 6)))
    records = [Record(y, u=u, prior=prior), Record(y, u=u)]
    parity = export_c(CASES["ekf-attitude"].build(torch.float32), tmp_path, measure=False, records=records)["parity"]
    assert (parity["ok"], parity["steps"]) == (True, 40), parity


def test_a_system_of_ones_own_exports(tmp_path: Path):
    """The motion is a Python function of the user: nothing in the generator knows it."""
    system = fwnkf.System.of(
        f=lambda angle, rate, dt: (angle + dt * rate, rate - dt * 9.81 * torch.sin(angle)),
        h=lambda angle: torch.sin(angle),
        Q=(1e-6, 1e-4),
        R=1e-2,
        state={"angle": "angle", "rate": 1},
        measurement=1,
        dt=0.01,
    )
    parity = export_c(fwnkf.EKF(system), tmp_path, steps=100, measure=False)["parity"]
    assert parity["ok"], parity


@pytest.mark.parametrize("command", ["gcc", "clang"])
def test_golden_vectors_and_hostile_inputs_under_sanitizers(project: Path, command: str, tmp_path: Path):
    if shutil.which(command) is None:
        pytest.skip(f"{command} is not installed")
    checks = ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    run(command, *STRICT, *checks, "paper.c", "test_paper.c", "-lm", "-o", tmp_path / "test", folder=project)
    shown = run(tmp_path / "test", "20000", folder=project)
    assert "state finite" in shown
    assert " 0 flagged" not in shown


@pytest.mark.slow
def test_ten_million_hostile_steps(project: Path, tmp_path: Path):
    run("cc", *STRICT, "-O3", "paper.c", "test_paper.c", "-lm", "-o", tmp_path / "test", folder=project)
    run(tmp_path / "test", "10000000", folder=project)


@pytest.mark.slow
def test_valgrind_finds_nothing(project: Path, tmp_path: Path):
    if shutil.which("valgrind") is None:
        pytest.skip("valgrind is not installed")
    run("cc", *STRICT, "-O1", "-g", "paper.c", "test_paper.c", "-lm", "-o", tmp_path / "test", folder=project)
    run("valgrind", "--error-exitcode=1", "-q", tmp_path / "test", "1000", folder=project)


@pytest.mark.slow
def test_the_cmake_project_builds_and_passes(project: Path, tmp_path: Path):
    if shutil.which("cmake") is None:
        pytest.skip("cmake is not installed")
    run("cmake", "-S", project, "-B", tmp_path, folder=project)
    run("cmake", "--build", tmp_path, folder=project)
    run("ctest", "--test-dir", tmp_path, folder=project)


def test_the_cpp_wrapper_compiles(project: Path, tmp_path: Path):
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    (tmp_path / "use.cpp").write_text(
        '#include "paper.hpp"\nint main() { paper::Filter filter; std::array<paper_real, 2> y{{1, 2}};\n'
        "std::array<paper_real, 1> u{{0}}; paper::Mask mask{{1, 0}};\n"
        "return filter.update(y, u, 0.1f).status | filter.step(y, u, 0.1f, &mask).status; }\n"
    )
    run("gcc", *STRICT, "-c", "paper.c", "-o", tmp_path / "paper.o", folder=project)
    flags = ["-std=c++11", "-Wall", "-Wextra", "-Werror", "-I", project]
    run("g++", *flags, "use.cpp", "paper.o", "-lm", "-o", "use", folder=tmp_path)
    run(tmp_path / "use", folder=tmp_path)


def test_the_command_writes_a_project_and_prints_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    fwnkf.save(CASES["kf"].build(torch.float32), tmp_path / "model")
    assert main(["export", str(tmp_path / "model"), "--out", str(tmp_path / "out"), "--steps", "20"]) == 0
    shown = capsys.readouterr().out
    assert "RAM in bytes: state" in shown
    assert "OK: 20 steps" in shown
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "model.c", "model.h", "model.hpp", "model_golden.h", "test_model.c", "CMakeLists.txt", "report.json",
    }  # fmt: skip


def test_the_command_takes_the_form_of_the_covariance(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    fwnkf.save(CASES["kf"].build(torch.float32), tmp_path / "model")
    call = ["export", str(tmp_path / "model"), "--out", str(tmp_path / "out"), "--steps", "20", "--solve"]
    assert main([*call, "square_root"]) == 0
    written = (tmp_path / "out" / "model.c").read_text()
    export_c(with_solve(CASES["kf"].build(torch.float32), "square_root"), tmp_path, "model", steps=0, measure=False)
    assert written == (tmp_path / "model.c").read_text()
    assert main([*call, "schur"]) == 1
    assert "option solve = 'schur' does not fit" in capsys.readouterr().err


def test_names_and_outputs_are_checked(tmp_path: Path):
    model = CASES["kf"].build(torch.float32)
    with pytest.raises(ConfigError, match="name 'My filter': wanted a C identifier"):
        export_c(model, tmp_path, "My filter")
    with pytest.raises(ConfigError, match="outputs: gain unknown; there are: mean, cov"):
        export_c(model, tmp_path, outputs=("mean", "gain"))


def test_an_operator_without_c_is_named(tmp_path: Path):
    system = fwnkf.System.of(f=lambda x: torch.special.bessel_j0(x), h=lambda x: x, Q=(1.0,), R=(1.0,))
    with pytest.raises(ConfigError, match=r"operator aten.special_bessel_j0.default, for which there is no C"):
        export_c(fwnkf.UKF(system), tmp_path)


def test_every_nonzero_flag_of_a_mask_means_measured(tmp_path: Path):
    """Callers write 1, 2 or 255; a bitwise "and" with 2 is zero."""
    eye = torch.eye(2)
    model = fwnkf.KF(F=eye, H=eye, Q=eye, R=eye)
    export_c(model, tmp_path, steps=0, by_axis=False)
    library = c_parity.Library(trace(model), tmp_path, "filter")
    means = []
    for flag in (1, 2, 255):
        library.functions.filter_init(ctypes.byref(library.state))
        inputs = {"y": torch.ones(1, 2), "mask": torch.full((1, 2), flag)}
        assert library.advance("step", inputs) == 0
        means.append(list(library.state.mean))
    assert means[0] == means[1] == means[2] != [0.0, 0.0]


def test_a_name_cannot_end_a_comment(tmp_path: Path):
    system = fwnkf.LinearSystem.of(
        F=torch.eye(1), H=torch.eye(1), Q=torch.eye(1), R=torch.eye(1), layout=(("x */ y", "euclidean", 1),)
    )
    assert export_c(fwnkf.EKF(system), tmp_path, steps=3)["parity"]["ok"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "class"}, "'class'"),
        ({"name": "advance"}, "'advance'"),
        ({"steps": -1}, "steps = -1"),
        ({"outputs": ()}, "at least one of mean"),
        ({"outputs": ("mean", "mean")}, "each once"),
    ],
)
def test_what_would_not_compile_is_refused_before(options: dict, message: str, tmp_path: Path):
    with pytest.raises(ConfigError, match=message):
        export_c(CASES["kf-cholesky"].build(torch.float32), tmp_path, **options)


class Colliding(NamedTuple):
    y: torch.Tensor
    register: torch.Tensor
    u: tuple[torch.Tensor, ...]
    u_0: torch.Tensor


def test_names_of_a_state_that_mean_something_in_c_get_another_one(tmp_path: Path):
    """A state with leaves ``y``, ``register``, ``u.0`` and ``u_0``, of which each must stay itself."""
    kf = fwnkf.KF(F=torch.eye(2), B=torch.eye(2, 1), H=torch.eye(1, 2), Q=torch.eye(2), R=torch.eye(1))

    class Renamed(type(kf)):  # type: ignore[misc]
        def init_state(self, batch, prior):
            state = super().init_state(batch, prior)
            return Colliding(state.mean, state.cov, (state.mean + 1,), state.mean + 2)

        def predict_state(self, prepared, state, u, dt, measured=None):
            ahead = super().predict_state(prepared, Gaussian(state.y, state.register), u, dt, measured)
            return ahead._replace(state=Colliding(*ahead.state, state.u, state.u_0))

        def update_state(self, prepared, ahead, y, weight):
            state = ahead.state
            plain = ahead._replace(state=Gaussian(state.y, state.register))
            following, out, linear = super().update_state(prepared, plain, y, weight)
            return Colliding(*following, (state.u[0] + out.mean,), state.u_0 - out.mean), out, linear

    kf.__class__ = Renamed
    facts = export_c(kf, tmp_path, steps=20, measure=False)
    assert facts["parity"]["ok"], facts["parity"]
    states = [name for name in facts["parity"]["relative_error"] if name.startswith("state.")]
    assert states == ["state.y_", "state.register_", "state.u_0", "state.u_0_"]
