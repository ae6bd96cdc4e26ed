#include "round_rows.h"

#include <math.h>
#include <string.h>

static const double MOST_WEIGHT = 4.0; /* of a token of a text that is late */
static const double LATER = 0.03; /* of its time without speculation that a text may end later */

double step_seconds(const Controller *c, int tokens) {
    double more = fmax(c->context - c->shortest, 0.0);
    double fixed = c->per_sequence * (c->num - 1) + c->per_read * c->num * more;
    return (c->base[tokens - 1] + fixed + c->per_row_read * more * tokens) *
           c->factors[tokens - 1];
}

double drafting_seconds(const Prices *prices, int depth, int drafted, int behind) {
    if (!drafted) return 0.0;
    return prices->overhead + prices->per_depth * depth + prices->per_token * drafted +
           prices->catch_up * behind;
}

int width_of(const Controller *c, const Candidate *candidates, int num) {
    int longest = 0;
    for (const Candidate *each = candidates; each < candidates + num; each++)
        for (int at = 0; at < each->num_lookups; at++)
            if (each->lookups[at].length > longest) longest = each->lookups[at].length;
    longest = longest < c->max_lookup ? longest : c->max_lookup;
    return longest > c->max_k ? longest : c->max_k;
}

int64_t memory_of_round(const Controller *c, const Candidate *candidates, int32_t num) {
    int64_t items = (int64_t)num * width_of(c, candidates, num);
    return items * 5 + 2 + (int64_t)num * 7;
}

Rows rows_of(const Controller *c, const Candidate *candidates, Plan *plans) {
    size_t items = (size_t)c->num * c->width, num = c->num;
    Rows rows = {.candidates = candidates, .plans = plans, .offered = (Offered *)c->memory};
    rows.gains = c->memory + 2 * items;
    rows.taken = rows.gains + items;
    rows.verification = rows.taken + items;
    rows.values = rows.verification + items + 1;
    rows.rivals = rows.values + num;
    rows.tokens = rows.rivals + num;
    rows.hoped = rows.tokens + num;
    rows.lengths = (int32_t *)(rows.hoped + num);
    rows.is_drafted = rows.lengths + num;
    rows.is_wanted = rows.is_drafted + num;
    return rows;
}

double weight_of(const Candidate *candidate) {
    return candidate->lateness > 1 ? fmin(candidate->lateness, MOST_WEIGHT) : 1.0;
}

double worth_of(const double *gains, int width, double value, double price, int *count) {
    double worth = 0.0;
    *count = 0;
    for (int at = 0; at < width && gains[at] * value > price; at++, ++*count)
        worth += gains[at] * value - price;
    return worth;
}

const Lookup *best_lookup(const Controller *c, const Candidate *each, double value,
                                 double price, double *gains, double *worth, int *count) {
    const Lookup *best = NULL;
    double own[POSITIONS];
    *worth = 0.0;
    *count = 0;
    for (int at = 0; at < each->num_lookups; at++) {
        const Lookup *lookup = each->lookups + at;
        int length = lookup->length < each->room ? lookup->length : each->room, paying;
        length = length < c->width ? length : c->width;
        if (length <= 0) continue;
        memset(own, 0, sizeof own);
        expect_gains(c->kinds + lookup->kind, c->texts + each->text, lookup->proposer, NULL,
                     length, own);
        double its = worth_of(own, c->width, value, price, &paying);
        if (best && its <= *worth) continue;
        best = lookup;
        *worth = its;
        *count = paying;
        memcpy(gains, own, c->width * sizeof *gains);
    }
    return best;
}

double prompts_of_token(const Controller *c) {
    return c->writing > 0 ? c->reading / c->writing : 0.0;
}

double lag_allowed(const Text *text, int left, double prompts) {
    return LATER * (1 + prompts) * (text->written + (left < HORIZON ? left : HORIZON));
}

int is_in_time(const Candidate *each) { return each->lateness > 0 && each->lateness < 1; }
