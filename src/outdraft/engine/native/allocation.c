#include "allocation.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Of equals the earlier position comes first. */
static int compare(const void *one, const void *other) {
    const Offered *a = one, *b = other;
    if (a->net != b->net) return a->net < b->net ? 1 : -1;
    return (a->item > b->item) - (a->item < b->item);
}

/* Draft tokens that may be worth their cost, the best first. No token is verified that brings less
 * than the cheapest one costs. */
static int offered(const Offers *offers) {
    int most = offers->num * offers->width, count = 0;
    double least = INFINITY;
    for (int at = 0; at < most; at++)
        least = fmin(least, offers->verification[at + 1] - offers->verification[at]);
    least = offers->pace * fmax(least, 0.0);
    for (int text = 0; text < offers->num; text++) {
        double price = offers->is_drafted[text] ? offers->pace * offers->prices.per_token : 0.0;
        const double *gains = offers->gains + (size_t)text * offers->width;
        for (int at = 0; at < offers->width; at++) {
            double net = gains[at] * offers->values[text] - price;
            if (!(net > least)) break; /* gains fall */
            int depth = offers->is_drafted[text] ? at + 1 : 0;
            offers->memory[count++] = (Offered){net, at * offers->num + text, depth};
        }
    }
    qsort(offers->memory, count, sizeof(Offered), compare);
    return count;
}

int allocate_drafts(const Offers *offers, int32_t *lengths, double *price) {
    memset(lengths, 0, (size_t)offers->num * sizeof *lengths);
    *price = 0.0;
    int count = offered(offers), deepest = 0, best_depth = 0, best_last = -1;
    for (int at = 0; at < count; at++) {
        int depth = offers->memory[at].depth;
        deepest = depth > deepest ? depth : deepest;
    }
    const double *verification = offers->verification;
    double best = -offers->pace * verification[0];
    for (int depth = 0; depth <= deepest; depth++) {
        double shared = depth ? offers->prices.overhead + offers->prices.per_depth * depth : 0.0;
        double worth = 0.0, seconds = shared;
        int taken = 0;
        for (int at = 0; at < count; at++) {
            int own = offers->memory[at].depth;
            if (own > depth) continue;
            worth += offers->memory[at].net;
            seconds += own ? offers->prices.per_token : 0.0;
            taken++;
            double score = worth - offers->pace * (verification[taken] + shared);
            if (score > best && verification[taken] + seconds <= offers->most_seconds) {
                best = score;
                best_depth = depth;
                best_last = at;
            }
        }
    }
    int taken = 0;
    for (int at = 0; at <= best_last; at++) {
        int own = offers->memory[at].depth;
        if (own > best_depth) continue;
        lengths[offers->memory[at].item % offers->num]++;
        taken++;
    }
    if (!taken) return 0;
    int next = taken < offers->num * offers->width ? taken + 1 : taken;
    *price = offers->pace * fmax(verification[next] - verification[taken], 0.0) +
             offers->pace * offers->prices.per_token;
    return 1;
}
