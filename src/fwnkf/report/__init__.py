"""What a filter learned and how it did: facts as plain values, and plots."""
