"""What an encoder of the noise is worth on real recordings: the same filter with constant and with encoded Q and R."""
