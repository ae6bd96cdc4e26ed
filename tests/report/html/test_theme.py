"""Whether everything can be read, in both themes and without seeing colours apart."""

from __future__ import annotations

import pytest

from outdraft.report.html.theme import PALETTE, theme_css

LIGHT, DARK = 0, 1


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """WCAG 2: 1 to 21."""
    a, b = sorted((luminance(one), luminance(other)), reverse=True)
    return (a + 0.05) / (b + 0.05)


def mixed(one: str, other: str, share: float) -> str:
    """As `color-mix(in srgb, one share, other)`."""
    pairs = ((int(one[at : at + 2], 16), int(other[at : at + 2], 16)) for at in (1, 3, 5))
    return "#" + "".join(f"{round(a * share + b * (1 - share)):02x}" for a, b in pairs)


@pytest.mark.parametrize("side", [LIGHT, DARK])
def test_text_can_be_read(side: int) -> None:
    for ground in ("ground", "surface", "raised"):
        for ink in ("ink", "quiet", "link"):
            assert contrast(PALETTE[ink][side], PALETTE[ground][side]) >= 4.5, (ink, ground)
    for tone in ("ship", "part", "stop", "open"):
        ground = PALETTE[f"{tone}_ground"][side]
        for ink in (tone, "ink", "quiet"):
            assert contrast(PALETTE[ink][side], ground) >= 4.5, (tone, ink)


@pytest.mark.parametrize("side", [LIGHT, DARK])
def test_ink_can_be_read_on_the_hottest_cell(side: int) -> None:
    for heat in ("gain", "loss"):
        ground = mixed(PALETTE[heat][side], PALETTE["surface"][side], 0.62)
        assert contrast(PALETTE["ink"][side], ground) >= 4.5, heat


@pytest.mark.parametrize("side", [LIGHT, DARK])
def test_marks_stand_out(side: int) -> None:
    for name in ("s1", "s2", "s3", "s4", "s5", "s6", "axis"):
        assert contrast(PALETTE[name][side], PALETTE["surface"][side]) >= 3, name


def test_the_switch_knows_both_sides() -> None:
    css = theme_css()
    light, dark = (f"--ink:{PALETTE['ink'][side]}" for side in (LIGHT, DARK))
    assert css.count(light) == 3  # the usual, the switch, paper
    assert css.count(dark) == 2
    assert "#theme-dark:checked" in css
    assert "#theme-light:checked" in css
