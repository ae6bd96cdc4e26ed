"""How every page looks, in light and in dark: the palette and the style."""

import tomllib
from importlib.resources import files as resources

from outdraft.report.markup import Markup


def _read(name: str) -> str:
    return resources("outdraft.report").joinpath(name).read_text(encoding="utf-8")


PALETTE: dict[str, list[str]] = tomllib.loads(_read("palette.toml"))  # variable: [light, dark]


def stylesheet() -> Markup:
    return Markup(theme_css() + _read("style.css"))


def theme_css() -> str:
    """The system's choice, unless the page's own switch says otherwise; paper is always light."""
    light, dark = (
        "".join(f"--{name.replace('_', '-')}:{both[side]};" for name, both in PALETTE.items())
        for side in (0, 1)
    )
    return (
        f":root{{color-scheme:light dark;{light}}}\n"
        f"@media (prefers-color-scheme:dark){{:root{{{dark}}}}}\n"
        f":root:has(#theme-light:checked){{color-scheme:light;{light}}}\n"
        f":root:has(#theme-dark:checked){{color-scheme:dark;{dark}}}\n"
        f"@media print{{:root{{color-scheme:light;{light.replace(';', ' !important;')}}}}}\n"
    )
