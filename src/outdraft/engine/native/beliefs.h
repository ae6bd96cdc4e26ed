/* What is believed of acceptance: by position for the fleet, and how each text differs.
 *
 * A draft token is refused with a chance (a hazard) that depends on its position, the kind of draft
 * and the temperature band: that is counted over the fleet. A text multiplies all hazards by a
 * factor of its own, its frailty, whose prior is Gamma(s, s) around 1 and whose posterior mean is
 *
 *     (s + refused) / (s + refused that the fleet's hazards would have given).
 *
 * The fleet counts the first rounds of each text and probes. Later rounds are of texts that were
 * kept because they win: they would flatter it. */
#pragma once

#include <stdint.h>

enum { BANDS = 5, POSITIONS = 16, PROPOSERS = 4 };
enum { FIRST_GAP = 4 /* rounds to a first probe */ };

/* What the fleet tells apart: a draft, or a lookup after a match of some length. */
typedef struct {
    double first; /* its hazard before anything was seen */
    double tried[BANDS][POSITIONS], refused[BANDS][POSITIONS];
    double hazards[BANDS][POSITIONS], sums[BANDS][POSITIONS]; /* sums: over positions */
} Kind;

typedef struct {
    double refused, expected, mean;
    int64_t last, rounds; /* of its rounds: the last, how many */
} Frailty;

/* A sequence while it is known. */
typedef struct {
    Frailty frailties[PROPOSERS];
    double tokens, seconds; /* of late: in a round; its share of that, in plain steps */
    double lag, written;    /* plain steps that it has taken more than tokens got; tokens */
    int64_t due, gap;       /* rounds: of the next probe, from one to the next */
    int32_t band, is_off;   /* is_off: without drafts in the last round */
} Text;

/* A round of a text in which `drafted` tokens were verified. */
typedef struct {
    int32_t text, kind, proposer, drafted, accepted, is_probe;
} Round;

void kind_begin(Kind *kind, double first);
void text_begin(Text *text, int32_t band);

/* (count) the chance of each position to be accepted with all before it. */
void expect_gains(const Kind *kind, const Text *text, int32_t proposer, int32_t count,
                  double *gains);

/* Texts of different rounds differ. */
void learn_rounds(Kind *kinds, int32_t num_kinds, Text *texts, const Round *rounds, int32_t num,
                  int64_t now);
