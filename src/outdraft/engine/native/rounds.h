/* A round: who is drafted for, then which drafts are verified, then what is learned of that. One
 * call each. See docs/controller.md.
 *
 * In Python a plan is a hundred small operations, whose code comes from memory each time beside a
 * model that is read whole in every step: 0.4 to 1.2 ms of steps of 7 to 40. */
#pragma once

#include <stdint.h>

#include "allocation.h"
#include "beliefs.h"

enum { LOOKUPS = 2 };

/* A draft that was found already. */
typedef struct {
    int32_t proposer, kind, length;
} Lookup;

/* A text that is about to decode. */
typedef struct {
    double context, lateness; /* tokens before it; 0: without an objective */
    int32_t text, room, behind, left, num_lookups;
    Lookup lookups[LOOKUPS];
    int32_t num_drafted; /* what the draft wrote for it, as was wished, and how sure it was */
    uint8_t grades[POSITIONS];
} Candidate;

/* What the draft is asked for: k tokens, or fewer where the chance of all of them, by their
 * grades, falls below `floor`. */
typedef struct {
    double floor, chances[GRADES];
    int32_t k;
} Wish;

enum { PAYS, PROBE, LOSES, NO_ROOM, NO_PROPOSER, HOLDS_UP };

/* What it gets, and what has to be known of that when the round is over. */
typedef struct {
    double expected, weight; /* expected: tokens, the target's own included */
    int32_t text, proposer, kind, k, why, behind, num_drafted;
    uint8_t grades[POSITIONS];
} Plan;

/* Of a plan: tokens verified, by whichever proposer. */
typedef struct {
    int32_t plan, proposer, drafted, accepted;
} Outcome;

typedef struct {
    Kind *kinds;
    Text *texts;
    /* Seconds of a step by tokens, from 1 on, before and as corrections. */
    const double *base, *factors;
    double per_sequence, per_read, per_row_read, shortest; /* shortest: context that was timed */
    Prices prices;
    double *memory;  /* for a round */
    double average;  /* seconds of a verified token in the last round with drafts */
    /* Of late, in seconds: of reading prompts, and of plain steps for as many tokens as were
     * written meanwhile. */
    double reading, writing;
    double money;    /* seconds for probes; what they cost is taken off */
    int64_t now;
    int32_t num_kinds, draft, draft_kind, max_k, max_lookup; /* draft: its proposer; -1: none */
    int32_t is_held_back;
    /* Of the last round: seconds of a plain step, of a step without drafts but with prompts, and
     * of drafting; texts and tokens of that. */
    double plain, without, context, drafting;
    int32_t num, tokens, width, is_limited;
} Controller;

/* What became of a round. */
typedef struct {
    double verification, drafting; /* seconds that were expected */
    double catch_up;               /* of drafting: texts that it had not read */
    double emitted;                /* tokens that a text got on average, by weight */
    int32_t tokens, drafts;        /* of the step; drafted by the draft */
} Settled;

/* Of so many tokens, with the texts and the context of the last round. */
double step_seconds(const Controller *controller, int tokens);
/* Numbers of `memory` for so many candidates. */
int64_t memory_of_round(const Controller *controller, const Candidate *candidates, int32_t num);
/* For whom the draft writes, and how much. */
void wish_drafts(Controller *controller, const Candidate *candidates, int32_t num,
                 int32_t other_tokens, Wish *wishes);
/* What is verified, of the same candidates after that. */
void plan_round(Controller *controller, const Candidate *candidates, Plan *plans);
/* seconds: of the step without drafting, as measured; 0: not known. */
void learn_round(Controller *controller, const Plan *plans, const Outcome *outcomes, int32_t num,
                 double seconds, Round *rounds, Settled *settled);
