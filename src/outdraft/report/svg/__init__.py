"""Drawing primitives: numbers → SVG text. Colours are classes; the page's theme sets them."""
