from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from outdraft.report.markup import Markup, escape, join, number, tag


def test_what_is_no_markup_is_escaped() -> None:
    assert tag("p", "<b> & \"'") == "<p>&lt;b&gt; &amp; &quot;&#x27;</p>"
    assert tag("p", tag("b", "x"), None, ["y", ["<"]]) == "<p><b>x</b>y&lt;</p>"
    assert tag("a", title='"><script>') == '<a title="&quot;&gt;&lt;script&gt;"></a>'


def test_attributes() -> None:
    shown = tag("line", class_="grid", stroke_width=1.5, x1=2.0, y1=1 / 3, hidden=True)
    assert shown == '<line class="grid" stroke-width="1.5" x1="2" y1="0.33" hidden></line>'
    assert tag("p", class_=None, hidden=False) == "<p></p>"
    assert tag("meta", charset="utf-8") == '<meta charset="utf-8">'


def test_what_no_file_may_hold() -> None:
    assert escape("a\x00b\x1b\ud800") == "a\ufffdb\ufffd\ufffd"
    assert escape("tab\tline\n") == "tab\tline\n"


def test_numbers_are_short() -> None:
    assert [number(each) for each in (1.0, 0.25, 1 / 3, -0.001, 7)] == [
        "1", "0.25", "0.33", "-0", "7"
    ]  # fmt: skip


@given(st.text())
def test_no_text_becomes_markup(text: str) -> None:
    shown = tag("p", text, title=text)
    assert shown.count("<") == 2
    assert shown.count('"') == 2
    shown.encode()


def test_joined_is_markup() -> None:
    assert isinstance(join("a", tag("b")), Markup)
    assert join("<", tag("b")) == "&lt;<b></b>"
