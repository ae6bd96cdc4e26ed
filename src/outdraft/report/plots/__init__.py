"""Figures drawn: data of `figures` → SVG text, one function for each kind of picture."""
