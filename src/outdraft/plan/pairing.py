"""Whether a draft can propose for a target, and how well the two fit.

What no engine could run is a PairingError; everything else is a finding.
"""

from collections.abc import Iterator

from outdraft.errors import PairingError
from outdraft.modelspec import HeadSpec, MedusaSpec, ModelSpec, MtpSpec
from outdraft.modelspec.head import check_head_fits
from outdraft.modelspec.medusa import check_medusa_fits
from outdraft.modelspec.vocabulary import Vocabulary, read_vocabulary, vocabulary_difference
from outdraft.plan.findings import OK, UNKNOWN, WARN, Check, Pairing, make_check, size_ratio_check
from outdraft.plan.models import Model
from outdraft.plan.sizes import active_parameters

# Models of one tokenizer differ by up to this many padding rows (Qwen2.5).
MAX_PADDING = 128


def target_spec(target: Model) -> ModelSpec:
    if not isinstance(target.spec, ModelSpec):
        raise PairingError(
            f"{target.name} is a draft head, not a target; give it with --draft and the model it "
            "was trained for with --target"
        )
    return target.spec


def pair(target: Model, draft: Model, max_model_len: int) -> Pairing:
    """Check a draft against its target; raises PairingError when they cannot work together."""
    spec = target_spec(target)
    context = _context_finding(draft, max_model_len)
    if isinstance(draft.spec, HeadSpec):
        check_head_fits(draft.spec, spec, name=draft.name, target_name=target.name)
        return Pairing(None, None, True, (*_head_findings(spec, draft.spec), context))
    if isinstance(draft.spec, MedusaSpec):
        check_medusa_fits(draft.spec, spec, name=draft.name, target_name=target.name)
        guesses = f"{draft.spec.num_guesses} tokens in a round at most"
        return Pairing(None, None, True, (Check("heads", guesses, "at least k", OK),))
    if isinstance(draft.spec, MtpSpec):
        layers = f"{draft.spec.num_layers} in the target's own checkpoint"
        return Pairing(None, True, True, (Check("mtp_layers", layers, "at least 1", OK),))
    same_tokenizer, vocabulary = _vocabulary_findings(target, draft)
    ratio = active_parameters(spec) / active_parameters(draft.spec)
    families = spec.family, draft.spec.family
    same_family = families[0] == families[1]
    family = make_check(
        "family",
        families[0] if same_family else " and ".join(families),
        "same",
        "a draft of another family was trained otherwise and guesses worse",
        is_bad=not same_family,
    )
    findings = (*vocabulary, context, family, size_ratio_check(ratio))
    return Pairing(ratio, same_family, same_tokenizer, findings)


def _vocabulary_findings(target: Model, draft: Model) -> tuple[bool | None, list[Check]]:
    """Compares the files' tokens, else the table's names, else the number of rows."""
    ours, theirs = (
        None if model.path is None else read_vocabulary(model.path) for model in (target, draft)
    )
    rows = target.spec.vocab_size, draft.spec.vocab_size
    state, advice, difference = OK, "", None
    if ours is not None and theirs is not None:
        value = f"{len(ours.tokens)} tokens, all equal"
        difference = vocabulary_difference(ours.tokens, theirs.tokens)
    elif target.tokenizer is not None and draft.tokenizer is not None:
        value = f"both {target.tokenizer} (by the table)"
        if target.tokenizer != draft.tokenizer:
            names = target.tokenizer, draft.tokenizer
            difference = "the target has the tokenizer {}, the draft {}".format(*names)
    else:
        state, value = UNKNOWN, f"{rows[0]} and {rows[1]} rows"
        advice = "no tokenizer files for both: give folders or .gguf files to compare every token"
        if abs(rows[0] - rows[1]) > MAX_PADDING:
            difference = f"the target has {rows[0]} tokens, the draft {rows[1]}"
    if difference is not None:
        raise PairingError(
            f"{draft.name} cannot draft for {target.name}: {difference}; choose a draft with the "
            "target's tokenizer (--suggest lists some)"
        )
    findings = [Check("vocabulary", value, "equal", state, advice)]
    if rows[0] != rows[1]:
        advice = (
            "padded differently: llama.cpp and outdraft do not mind, vLLM refuses such a draft "
            "model unless use_heterogeneous_vocab is set"
        )
        rows_text = f"{rows[0]} and {rows[1]}"
        findings.append(Check("embedding_rows", rows_text, "equal", WARN, advice))
    if ours is not None and theirs is not None:
        findings += _special_findings(ours, theirs)
    return True if state == OK else None, findings


def _special_findings(ours: Vocabulary, theirs: Vocabulary) -> Iterator[Check]:
    differences = [
        f"{name} {ours.named.get(name)!r} and {theirs.named.get(name)!r}"
        for name in sorted(ours.named.keys() | theirs.named.keys())
        if ours.named.get(name) != theirs.named.get(name)
    ]
    unshared = sorted(ours.special ^ theirs.special)
    if unshared:
        differences.append(f"{unshared[0]!r} is special in one of them only")
    yield make_check(
        "special_tokens",
        "; ".join(differences) or f"{len(ours.special)}, all equal",
        "equal",
        "the draft was trained on other turns: it guesses worse where they end",
        is_bad=bool(differences),
    )
    templates = ours.chat_template, theirs.chat_template
    if templates != (None, None):
        same = templates[0] == templates[1]
        yield make_check(
            "chat_template",
            "equal" if same else "only one has one" if None in templates else "different",
            "equal",
            "the target's is used for both; a draft tuned on another guesses worse in chats",
            is_bad=not same,
        )


def _context_finding(draft: Model, max_model_len: int) -> Check:
    longest = draft.spec.max_context
    return make_check(
        "context",
        f"the draft reads {longest} tokens, texts have up to {max_model_len}",
        "at least --max-model-len",
        f"beyond {longest} tokens drafting stops or goes wrong, in vLLM for the whole batch",
        is_bad=longest < max_model_len,
    )


def _head_findings(target: ModelSpec, head: HeadSpec) -> Iterator[Check]:
    yield Check("hidden_size", str(target.hidden_size), "equal", OK)
    taps = head.taps(target.num_layers)
    if taps:
        default = " (the engine's default)" if head.layer_ids is None else ""
        layers = ", ".join(map(str, taps)) + default
        yield Check("tapped_layers", layers, f"at most {target.num_layers}", OK)
    is_whole = head.draft_vocab_size == target.vocab_size
    yield Check(
        "draft_vocabulary",
        f"{head.draft_vocab_size} of {target.vocab_size} tokens",
        "part of the target's",
        OK,
        "" if is_whole else "other tokens are never proposed",
    )
