"""Pure mathematics on tensors: no state, no files, torch only."""
