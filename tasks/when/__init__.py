"""Where frequency weighting helps: every estimator beside the oracle, over disturbances of all kinds."""
