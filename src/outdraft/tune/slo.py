"""Whether an SLO can be met at all: else there is nothing to choose by. Pure."""

from outdraft.errors import OptionError
from outdraft.measure.summary import meets
from outdraft.tune.journal import Journal, done_records
from outdraft.tune.rules import SearchSettings


def check_slo(settings: SearchSettings, journal: Journal, times: float = 1.0) -> None:
    """Refuses an SLO of which no request of the main load met so many times the limits."""
    slo = settings.rules.objective.slo
    if not slo:
        return
    every = journal.blocks.values()
    done = done_records(each for each in every if each.load == settings.loads[0].name)
    loose = {name: times * limit for name, limit in slo.items()}
    if done and not any(meets(each, loose) for each in done):
        limits = ",".join(f"{name}={limit:g}" for name, limit in slo.items())
        more = f", nor {times:g} times that" if times > 1 else ""
        raise OptionError(
            f"--slo {limits}: none of the {len(done)} requests of any arm met it{more}; loosen "
            "it, and the same --out continues with what was measured"
        )
