/* What both calls that plan a round share: `wishes.c` and `rounds.c`. */
#pragma once

#include "rounds.h"

#define TINY 1e-9 /* seconds, and tokens */
#define LARGE_GAIN 1.15 /* of all together, for which some may wait */
enum { HORIZON = 96 /* tokens over which reading a text has to pay, where it may get so many */ };
enum { FEW_BEHIND = 16 /* tokens that a draft reads on the way */ };
enum { LONGEST_GAP = 32 /* rounds between probes of a text; they double */ };

/* What a round is planned with: one row for every candidate. */
typedef struct {
    const Candidate *candidates;
    Plan *plans;
    double *gains, *taken, *verification, *values; /* values: seconds that a token is worth */
    double *rivals, *tokens; /* what a lookup is worth, in seconds; its tokens */
    double *hoped; /* tokens of a round, before drafts are written */
    int32_t *lengths, *is_drafted, *is_wanted;
    Offered *offered;
} Rows;

double drafting_seconds(const Prices *prices, int depth, int drafted, int behind);
int width_of(const Controller *controller, const Candidate *candidates, int num);
Rows rows_of(const Controller *controller, const Candidate *candidates, Plan *plans);
/* More than 1 where its objective is missed. */
double weight_of(const Candidate *candidate);
int is_in_time(const Candidate *candidate);
/* Who gets more tokens than others ends earlier, and then the next prompt is read, for which the
 * others wait: prompts come as often as tokens are written. So a round in which texts get `mean`
 * tokens takes all of them `prompts * mean` plain steps more, now or later, and without speculation
 * a token takes `1 + prompts`. */
double prompts_of_token(const Controller *controller);
/* Plain steps that a text may end later. */
double lag_allowed(const Text *text, int left, double prompts);
/* What drafts are worth, each token at `price`, and how many are worth anything. */
double worth_of(const double *gains, int width, double value, double price, int *count);
/* What the best lookup is worth; NULL where there is none. */
const Lookup *best_lookup(const Controller *controller, const Candidate *candidate, double value,
                          double price, double *gains, double *worth, int *count);
