"""What is wrong with an estimate: spectra of innovations, peaks and their causes, consistency, and a verdict."""
