"""The runtime type checker of the shape-checking pass: beartype, reading ``float`` as PEP 484 does (an int will do)."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
