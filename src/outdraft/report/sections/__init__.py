"""The sections of the page: one file each, from the results to HTML and SVG."""
