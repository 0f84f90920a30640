"""Training: experiment configuration, losses, the Lightning training loop, and safetensors checkpoints."""

from ..lazy import attach

__getattr__ = attach(__name__, dict.fromkeys(("experiments", "fit", "likelihood_fit", "losses"), ()))

__all__ = ["experiments", "fit", "likelihood_fit", "losses"]
