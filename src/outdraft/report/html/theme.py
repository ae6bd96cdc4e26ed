"""The colours, light and dark, as CSS variables. Series follow Okabe and Ito, made darker or
lighter until they stand out from the ground; `tests` hold the contrasts."""

from __future__ import annotations

# name: (light, dark)
PALETTE = {
    "ground": ("#f5f6f7", "#111417"),
    "surface": ("#ffffff", "#1a1e22"),
    "raised": ("#f0f2f4", "#23282d"),
    "ink": ("#1b2027", "#e9ecef"),
    "quiet": ("#5a6470", "#9ba6b2"),
    "edge": ("#dfe3e7", "#30373e"),
    "grid": ("#e8ebee", "#2a3037"),
    "axis": ("#8a95a1", "#6b7682"),
    "link": ("#005f99", "#6fc0f0"),
    "s1": ("#0072b2", "#56b4e9"),  # blue
    "s2": ("#c85200", "#f28c4a"),  # vermillion
    "s3": ("#00805d", "#35c79c"),  # bluish green
    "s4": ("#a94c84", "#e093be"),  # reddish purple
    "s5": ("#8f6400", "#e3b23c"),  # ochre
    "s6": ("#545d68", "#b4bdc7"),  # grey
    "gain": ("#3d9bd6", "#2b7fb8"),  # of the heat map: faster than off
    "loss": ("#ef8a4c", "#c26a2e"),  # slower
    "ship": ("#00694c", "#4fd3a8"),
    "ship_ground": ("#e4f4ee", "#12302a"),
    "part": ("#00598f", "#7cc4f2"),  # ship for a part of the traffic
    "part_ground": ("#e5f1f9", "#14293a"),
    "stop": ("#a03a00", "#ff9e63"),
    "stop_ground": ("#fceee5", "#38221a"),
    "open": ("#6b5200", "#e6c463"),  # inconclusive
    "open_ground": ("#f8f2df", "#302a17"),
}


def variables(side: int, mark: str = "") -> str:
    return "".join(
        f"--{name.replace('_', '-')}:{both[side]}{mark};" for name, both in PALETTE.items()
    )


def theme_css() -> str:
    """The system's choice, unless the page's own switch says otherwise; paper is always light."""
    light, dark = variables(0), variables(1)
    return (
        f":root{{color-scheme:light dark;{light}}}\n"
        f"@media (prefers-color-scheme:dark){{:root{{{dark}}}}}\n"
        f":root:has(#theme-light:checked){{color-scheme:light;{light}}}\n"
        f":root:has(#theme-dark:checked){{color-scheme:dark;{dark}}}\n"
        f"@media print{{:root{{color-scheme:light;{variables(0, ' !important')}}}}}\n"
    )
