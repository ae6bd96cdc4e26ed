/* How many draft tokens each text of a batch gets: those that give most at a pace.
 *
 * The expected tokens of a round are a sum over draft tokens: each adds the chance that it and all
 * before it are accepted. That falls with the position, so the best t draft tokens of a batch are
 * the t largest chances. With seconds counted as tokens at some pace, what every depth of the draft
 * and every t is worth follows from sums over the chances in order, and the largest is taken: no
 * other allocation is better; within `most_seconds` none is where all draft tokens cost the same. */
#pragma once

#include <stdint.h>

/* What drafting costs, in seconds. */
typedef struct {
    double overhead, per_depth, per_token, catch_up;
} Prices;

typedef struct {
    double net;
    int32_t item, depth; /* item: position * num + text; depth: of the draft, 0 of a lookup */
} Offered;

typedef struct {
    const double *gains;        /* (num, width) tokens a position adds, falling; 0 where none may */
    const double *values;       /* (num) of a token of each */
    const double *verification; /* (num * width + 1) seconds by draft tokens in all */
    const int32_t *is_drafted;  /* (num): its tokens cost `prices`; others' were looked up */
    Prices prices;
    double pace;         /* tokens that a second is worth */
    double most_seconds; /* that the round may take */
    int32_t num, width;
    Offered *memory; /* (num * width) */
} Offers;

/* What a draft token more has to bring, in `price`. Whether there are any drafts. */
int allocate_drafts(const Offers *offers, int32_t *lengths, double *price);
