"""How good an estimate is, and whether its stated uncertainty can be believed."""
