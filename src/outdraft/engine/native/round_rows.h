/* What both calls that plan a round share: `wishes.c` and `rounds.c`. */
#pragma once

#include "rounds.h"

#define TINY 1e-9 /* seconds, and tokens */
#define LARGE_GAIN 1.03 /* of all together, for which some may wait */
enum { HORIZON = 96 /* tokens over which reading a text has to pay, where it may get so many */ };
enum { LONGEST_GAP = 32 /* rounds between probes of a text; they double */ };

/* What a round is planned with: one row for every candidate. */
typedef struct {
    const Candidate *candidates;
    Plan *plans;
    double *gains, *taken, *verification, *values; /* values: seconds that a token is worth */
    double *rivals, *tokens; /* what a lookup is worth, in seconds; its tokens */
    int32_t *lengths, *is_drafted, *is_wanted;
    Offered *offered;
} Rows;

double drafting_seconds(const Prices *prices, int depth, int drafted, int behind);
int width_of(const Controller *controller, const Candidate *candidates, int num);
Rows rows_of(const Controller *controller, const Candidate *candidates, Plan *plans);
/* More than 1 where its objective is missed. */
double weight_of(const Candidate *candidate);
int is_in_time(const Candidate *candidate);
/* Plain steps that a text may end later. */
double lag_allowed(const Text *text, int left);
/* What drafts are worth, each token at `price`, and how many are worth anything. */
double worth_of(const double *gains, int width, double value, double price, int *count);
/* What the best lookup is worth; NULL where there is none. */
const Lookup *best_lookup(const Controller *controller, const Candidate *candidate, double value,
                          double price, double *gains, double *worth, int *count);
