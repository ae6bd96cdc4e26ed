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
static int offered(const Batch *batch) {
    int most = batch->num * batch->width, count = 0;
    double least = INFINITY;
    for (int at = 0; at < most; at++)
        least = fmin(least, batch->verification[at + 1] - batch->verification[at]);
    least = batch->pace * fmax(least, 0.0);
    for (int text = 0; text < batch->num; text++) {
        double price = batch->is_drafted[text] ? batch->pace * batch->prices.per_token : 0.0;
        const double *gains = batch->gains + (size_t)text * batch->width;
        for (int at = 0; at < batch->width; at++) {
            double net = gains[at] * batch->values[text] - price;
            if (!(net > least)) break; /* gains fall */
            batch->memory[count++] = (Offered){net, at * batch->num + text};
        }
    }
    qsort(batch->memory, count, sizeof(Offered), compare);
    return count;
}

static int depth_of(const Batch *batch, int32_t item) {
    return batch->is_drafted[item % batch->num] ? item / batch->num + 1 : 0;
}

int allocate_drafts(const Batch *batch, int32_t *lengths, double *price) {
    memset(lengths, 0, (size_t)batch->num * sizeof *lengths);
    *price = 0.0;
    int count = offered(batch), deepest = 0, best_depth = 0, best_last = -1;
    for (int at = 0; at < count; at++) {
        int depth = depth_of(batch, batch->memory[at].item);
        deepest = depth > deepest ? depth : deepest;
    }
    const double *verification = batch->verification;
    double best = -batch->pace * verification[0];
    for (int depth = 0; depth <= deepest; depth++) {
        double shared = depth ? batch->prices.overhead + batch->prices.per_depth * depth : 0.0;
        double worth = 0.0, seconds = shared;
        int taken = 0;
        for (int at = 0; at < count; at++) {
            int own = depth_of(batch, batch->memory[at].item);
            if (own > depth) continue;
            worth += batch->memory[at].net;
            seconds += own ? batch->prices.per_token : 0.0;
            taken++;
            double score = worth - batch->pace * (verification[taken] + shared);
            if (score > best && verification[taken] + seconds <= batch->most_seconds) {
                best = score;
                best_depth = depth;
                best_last = at;
            }
        }
    }
    int taken = 0;
    for (int at = 0; at <= best_last; at++) {
        int own = depth_of(batch, batch->memory[at].item);
        if (own > best_depth) continue;
        lengths[batch->memory[at].item % batch->num]++;
        taken++;
    }
    if (!taken) return 0;
    int next = taken < batch->num * batch->width ? taken + 1 : taken;
    *price = batch->pace * fmax(verification[next] - verification[taken], 0.0) +
             batch->pace * batch->prices.per_token;
    return 1;
}
