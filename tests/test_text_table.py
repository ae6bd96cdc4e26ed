from outdraft.text_table import align_columns


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    assert align_columns([("", "a"), ("long name", "12"), ("x", "3456")]) == (
        "              a\nlong name    12\nx          3456"
    )
