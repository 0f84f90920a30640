"""A fleet's logs: batch filtering and fits over many devices, on one machine or on a Ray cluster."""
