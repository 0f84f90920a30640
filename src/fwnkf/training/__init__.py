"""Training: experiment configuration, losses, the Lightning training loop, and safetensors checkpoints."""
