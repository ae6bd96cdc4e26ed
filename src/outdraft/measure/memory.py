"""Servers that remember answers: prompts that come again look faster there than new ones."""

from collections.abc import Collection, Iterable

from outdraft.errors import BackendError
from outdraft.observe import RemoteServer
from outdraft.records import Record

REMEMBERED = "answers of earlier requests were remembered (--keep-memory)"


def forgets(server: RemoteServer) -> bool:
    """Whether it has just dropped what it remembers: our own does, if it was started so. Others
    are not asked, because their users may need what they keep."""
    try:
        if server.identify().engine == "outdraft":
            server.forget()
            return True
    except BackendError:  # it may not, or it is gone, which its requests will say
        pass
    return False


def repeats_note(records: Iterable[Record], forgetful: Collection[str] = ()) -> str:
    """How many requests had a prompt that their arm had answered before; empty for none. A
    forgetful arm forgets between blocks."""
    records = list(records)
    seen: set[tuple[str, str, int | None]] = set()
    num_repeats = 0
    for record in records:
        key = (record.arm, record.prompt_id, record.block if record.arm in forgetful else None)
        num_repeats += key in seen and not record.is_warmup
        seen.add(key)
    if not num_repeats:
        return ""
    total = sum(not each.is_warmup for each in records)
    return (
        f"{num_repeats} of {total} requests repeat a prompt that was answered before: a server "
        "that remembers answers looks faster here than where traffic does not recur"
    )
