"""The filters that the FW-NKF is compared with, as their papers define them."""
