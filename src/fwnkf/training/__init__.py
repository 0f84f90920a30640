"""Training: experiments as data, losses as objects, Lightning for the loop, safetensors for what is kept."""
