"""How a head's matrices can be stored.

float8 halves the file: a logit is a sum over hundreds of weights, so their 3 bits of fraction
hardly show in it, and what loads them makes them wider again. blocks (`modelspec/packed.py`) are
smaller still.
"""

STORAGES = ("bfloat16", "float8", "blocks")
