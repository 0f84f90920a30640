"""Reports on a filter: learned frequency response and noise as plain values, and plots of its performance."""
