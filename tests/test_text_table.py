from outdraft.text_table import align_columns, wrap_lines


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    assert align_columns([("", "a"), ("long name", "12"), ("x", "3456")]) == (
        "              a\nlong name    12\nx          3456"
    )


def test_lines_end_between_words() -> None:
    assert wrap_lines("one two-three four\nfive", 12) == "one\n  two-three\n  four\nfive"
    assert wrap_lines("one two-three four", None) == "one two-three four"
    assert wrap_lines("a" * 20, 12) == "a" * 20, "what is longer than the width stays whole"
