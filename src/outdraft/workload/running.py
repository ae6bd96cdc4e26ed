"""Bands of load: how many texts are being written at once. One definition for all that counts."""


def running_band(num_running: float) -> str:
    """1, 2, 3-4, 5-8, 9-16 and so on: each but the first ends at a power of two."""
    last = 1
    while last < round(num_running):
        last *= 2
    first = last // 2 + 1
    return str(last) if last <= 2 else f"{first}-{last}"
