"""The laboratory: one folder for each data set, with its protocol, baselines, training and evaluation.

Not part of the installed package. Everything here uses public names of ``fwnkf``, as a user's own project would;
``python -m tasks list`` says what there is.
"""
