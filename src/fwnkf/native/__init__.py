"""Functions of tensors as C, compiled for this machine; and the time loop of filters on top of it."""

__all__: list[str] = []
