"""Which engines of a run are up together, and on which GPUs: by what this machine has free."""

from collections.abc import Mapping, Sequence

from outdraft.backends.backend import Backend, Capabilities
from outdraft.errors import OptionError
from outdraft.measure.machine import gpu_ids, gpu_memory
from outdraft.measure.main_memory import available_memory
from outdraft.plan import Plan
from outdraft.speculation import Speculation
from outdraft.tune.arm import by_proposer
from outdraft.tune.cards import Cards, deal_cards
from outdraft.tune.footprint import memory_words, most_together, own_engine_bytes
from outdraft.tune.keeping import Keeping, Memory, plan_keeping, roomy_gpus
from outdraft.tune.options import ASLEEP, SIDE_BY_SIDE
from outdraft.tune.settings import RunSettings


def place_engines(
    settings: RunSettings,
    backend: Backend,
    plans: Mapping[str, Plan],  # of proposers
    arms: Sequence[Speculation],
) -> tuple[Keeping, Cards]:
    supported, num_each = backend.capabilities(), settings.serving.tensor_parallel_size
    if settings.servers:
        return Keeping(SIDE_BY_SIDE), Cards()
    if supported.shares_process:
        return _place_own(settings, plans, by_proposer(arms)), Cards()
    is_gpu = backend.installation.device != "cpu"
    gpus, ids = (gpu_memory(), gpu_ids()) if is_gpu else ([], [])
    if gpus:
        usable = roomy_gpus([free for _, free in gpus], num_each)
        gpus, ids = [gpus[at] for at in usable], [ids[at] for at in usable]
    weights = (each.headline.target_bytes + each.headline.draft_bytes for each in plans.values())
    memory = Memory(
        max(weights, default=None),
        available_memory(),
        is_gpu,
        min((total for total, _ in gpus), default=None),
        min((free for _, free in gpus), default=None),
    )
    keeping = plan_keeping(
        settings.keep_engines,
        supported.sleep,
        memory,
        settings.serving.extra,
        num_cards=max(min(len(ids) // num_each, len(by_proposer(arms))), 1),
        num_engines=1 + len(arms),
        told_share=supported.memory_share,
    )
    if not settings.serving.forgets:
        check_memory_kept(keeping, supported, arms)
    most = keeping.most if keeping.how == ASLEEP else None
    return keeping, deal_cards(arms, ids, num_each, most, keeping.most_in_all)


def check_memory_kept(
    keeping: Keeping, supported: Capabilities, arms: Sequence[Speculation]
) -> None:
    """For --keep-memory: whether a sleep takes it. What asks such an engine if it is idle makes it
    forget, and it must be asked before it sleeps."""
    path, paths = supported.idle_path, supported.forget_paths
    lost = [arm.method for arm in arms if path and paths.get(arm.method) == path]
    if keeping.how == ASLEEP and lost:
        raise OptionError(
            f"--keep-memory: {lost[0]} forgets whenever its engine falls asleep (POST {path}); "
            f"leave it out, or --keep-engines {SIDE_BY_SIDE}"
        )


def _place_own(
    settings: RunSettings, plans: Mapping[str, Plan], proposers: Mapping[str, list[Speculation]]
) -> Keeping:
    """A process for each proposer, and one for off."""
    if not plans or plans.keys() != proposers.keys():
        return Keeping(SIDE_BY_SIDE)  # their files cannot be read here
    dtype, kv_tokens = settings.serving.dtype, settings.kv_tokens
    first = next(iter(plans.values()))
    sizes = [own_engine_bytes(first, dtype, None, kv_tokens)]
    for name, plan in plans.items():
        sizes.append(own_engine_bytes(plan, dtype, proposers[name][0].quantization, kv_tokens))
    free = available_memory()
    most = most_together(sizes, free)
    return Keeping(SIDE_BY_SIDE, most, memory=memory_words(sizes, free, most))
