"""Lorenz and pendulum: tasks on simulated records, and the robustness and ablation studies."""

from pathlib import Path

from tasks.interface import Task
from tasks.simulated.commands import add_commands
from tasks.simulated.lorenz_pendulum import ColouredNoise, UnknownDynamics

EXPERIMENTS = Path(__file__).parent / "experiments"
PUBLISHED = "0.2755 ± 0.0679"
"""MSE of the paper's public code on Lorenz, from its README."""
ONE_SYSTEM = "Made for this system, this sampling rate and white noise of this variance."
LEVELS = (
    "It ships with `Hypotheses(fallback=True, levels=…, usual=0.8)`: the noise at a quarter to four times its variance "
    "(that of training has a probability of 0.8), that the disturbance is absent, and that all noise is white, are "
    "weighed by their likelihood ([robustness](../../docs/results/robustness.md) measures what that gives). Where the "
    "disturbance is absent, the white noise is the least power of its spectrum at any frequency. There is no network: "
    "the equations are given, and a GRU that conditions Q and R does not lower the error in noise whose frequency is "
    "known. `untrained` is the filter without hypotheses about the level: what they cost in the noise of training."
)
FALLBACK = (
    "It ships with `Hypotheses(fallback=True)`: two more hypotheses, that the disturbance is absent and that all "
    "noise is white, are weighed beside the learned noise ([robustness](../../docs/results/robustness.md) measures "
    "what that gives). There is no network in the transition: the equations are given, and the GRU conditions Q and R."
)
ORACLE_NOTE = (
    "`ekf` assumes white noise of the right variance, `oracle` is the EKF with the true noise model as extra states, "
    "`oracle_second_order` adds the curvature of the transition to its mean and covariance, as this filter does: "
    "compare error bars with that one."
)


def coloured(
    scenario: str, title: str, options: str, noise: str, limits: str, *, known_frequency: bool = True
) -> ColouredNoise:
    """The task of one coloured noise."""
    form = LEVELS if known_frequency else FALLBACK
    return ColouredNoise(
        f"lorenz-{scenario.replace('_', '-')}",
        f"Lorenz with equations in coloured noise: {title}",
        "lorenz-coloured",
        0.85,
        protocol="strict",
        overrides=(
            f"data.scenario={scenario}",
            *(f"filter.options.{option}" for option in options.split()),
            *(("filter.options.encoder=null", "trainer.steps=20") if known_frequency else ()),
        ),
        about=f"Lorenz-63 with its equations, x and y measured in {noise}, a tenth of its power white. The filter "
        "learns the noise as oscillator states from 2,000 training records: fitted to the spectrum of the noise, then "
        f"trained on the likelihoods of states and measurements. {form} {ORACLE_NOTE}",
        limits=f"Made for this system, and for noise like that of its training records. {limits}".strip(),
        ladder=known_frequency,  # ten hypotheses take minutes for each row of it
    )


def algorithm3(start: str, title: str, target: float, overrides: tuple[str, ...], training: str) -> UnknownDynamics:
    """The task of the paper's Algorithm 3 with one way of training."""
    return UnknownDynamics(
        f"lorenz-algorithm3-{start}",
        f"Lorenz without equations, Algorithm 3 of the paper {title}",
        EXPERIMENTS / "lorenz-algorithm3.yaml",
        target,
        protocol="paper",
        overrides=overrides,
        published=PUBLISHED,
        about="Lorenz-63, x and y measured in white noise. The form of the paper: a GRU that reads the current "
        "measurement gives a locally linear transition (low-rank gate), Φ shapes the innovation, spectral loss, "
        f"weight 0.01. {training}",
        limits=f"{ONE_SYSTEM} The initial state is given exactly, which flatters every method that trusts it: the open "
        "loop with the true equations has hardly any error.",
        ladder=False,
    )


TASKS: tuple[Task, ...] = (
    algorithm3(
        "from-scratch",
        "as written",
        0.2755,
        (),
        "Trained through the filter alone, as in the paper; `lorenz-algorithm3-pretrained` is the same filter after "
        "regression of its transition.",
    ),
    algorithm3(
        "pretrained",
        "after regression of its transition",
        0.025,
        ("trainer.pretrain=1000", "trainer.steps=200"),
        "The paper has no pretraining: here the transition is fitted to the changes of true states for 1,000 steps "
        "before training through the filter; `lorenz-algorithm3-from-scratch` is without.",
    ),
    UnknownDynamics(
        "lorenz",
        "Lorenz without equations, regression of the motion",
        EXPERIMENTS / "lorenz-paper.yaml",
        1e-9,
        protocol="paper",
        published=PUBLISHED,
        about="Lorenz-63, x and y measured in white noise. The step is a polynomial of the state, fitted to the known "
        "states of training records; degree and a residual network are kept if records left out support them; no Φ.",
        limits=f"{ONE_SYSTEM} The row says little about filtering: the dynamics are free of noise and the initial "
        "state is given exactly, so that whoever fits the equations well enough can ignore the measurements; the open "
        "loop with the true equations has hardly any error, and the EKF that is given them a larger one.",
    ),
    UnknownDynamics(
        "lorenz-strict",
        "Lorenz without equations, initial state unknown",
        EXPERIMENTS / "lorenz-strict.yaml",
        0.5283,
        protocol="strict",
        about="Lorenz-63, x and y measured in white noise, initial state unknown. The step is a polynomial of the "
        "state, fitted to the known states of 4,000 training records; degree and a residual network are kept if "
        "records left out support them, and the floor of Q is that of the greatest likelihood of the states; no Φ.",
        limits=f"{ONE_SYSTEM} Most of the error is the unknown z of the first ten steps, which no filter can avoid.",
    ),
    coloured(
        "tone",
        "a tone of unknown frequency",
        "noise.count=1 hypotheses.frequencies=8",
        "a tone of random phase and frequency (0.2 to 0.4 of Nyquist, drawn for every record)",
        "The oracle is given the frequency of each record's tone; this filter weighs eight hypotheses about it.",
        known_frequency=False,
    ),
    coloured(
        "high_band",
        "a high band",
        "noise.count=3",
        "noise that is flat above half of Nyquist",
        "A flat band has no noise model of finite order: the oracle is two broad oscillators fitted to the band, so a "
        "filter with three fitted oscillators may close more than the whole gap.",
    ),
    coloured("drift", "drift", "noise.count=1", "first-order drift (pole 0.99 for each sample)", ""),
    coloured(
        "pink",
        "1/f",
        "noise.count=3",
        "1/f noise (three first-order drifts)",
        "Its NEES is above one because of a few records in a hundred.",
    ),
    UnknownDynamics(
        "pendulum",
        "Pendulum without equations",
        EXPERIMENTS / "pendulum-paper.yaml",
        0.0430,
        protocol="paper",
        about="A damped pendulum driven by a known torque, the position of its tip measured in white noise; angles are "
        "scored along the shortest arc. The step is a polynomial of angular rate, torque, and cosine and sine of the "
        "angle, fitted to known states; a residual network and a GRU are kept if records left out support them; no Φ.",
        limits=ONE_SYSTEM,
    ),
)

__all__ = ["TASKS", "add_commands"]
