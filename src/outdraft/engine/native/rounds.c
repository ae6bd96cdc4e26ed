#include "rounds.h"

#include <math.h>
#include <string.h>

static const double TINY = 1e-9;
static const double DAMPED = 0.97; /* a token counts so much for a text without drafts of late */
static const double MOST_WEIGHT = 4.0; /* of a token of a text that is late */
static const double MEMORY = 0.9; /* of what a text gets and takes, from round to round */
static const double LATER = 0.02; /* of its plain steps that a text may end later */
static const double LARGE_GAIN = 1.05; /* of all together, for which some may wait */
enum {
    FEW_BEHIND = 16, /* tokens that a draft reads on the way */
    HORIZON = 96, /* tokens over which reading a text has to pay, where it may get so many */
    MOST_TRIES = 4, /* until an allocation holds nobody up */
    LONGEST_GAP = 32, /* rounds between probes of a text; they double */
};

double step_seconds(const Controller *c, int tokens) {
    double more = fmax(c->context - c->shortest, 0.0);
    double fixed = c->per_sequence * (c->num - 1) + c->per_read * c->num * more;
    return (c->base[tokens - 1] + fixed + c->per_row_read * more * tokens) *
           c->factors[tokens - 1];
}

static double drafting_seconds(const Prices *prices, int depth, int drafted, int behind) {
    if (!drafted) return 0.0;
    return prices->overhead + prices->per_depth * depth + prices->per_token * drafted +
           prices->catch_up * behind;
}

static int width_of(const Controller *c, const Candidate *candidates, int num) {
    int longest = 0;
    for (const Candidate *each = candidates; each < candidates + num; each++)
        for (int at = 0; at < each->num_lookups; at++)
            if (each->lookups[at].length > longest) longest = each->lookups[at].length;
    longest = longest < c->max_lookup ? longest : c->max_lookup;
    return longest > c->max_k ? longest : c->max_k;
}

int64_t memory_of_round(const Controller *c, const Candidate *candidates, int32_t num) {
    int64_t items = (int64_t)num * width_of(c, candidates, num);
    return items * 4 + 2 + (int64_t)num * 4;
}

/* What a round is planned with: one row for every candidate. */
typedef struct {
    const Candidate *candidates;
    Plan *plans;
    double *gains, *verification, *values; /* values: seconds that a token of each is worth */
    int32_t *lengths, *is_drafted;
    Offered *offered;
} Work;

/* What the draft would give. */
static void expect_drafts(const Controller *c, const Work *work) {
    for (int row = 0; row < c->num; row++) {
        double *gains = work->gains + (size_t)row * c->width;
        const Candidate *each = work->candidates + row;
        Plan *plan = work->plans + row;
        *plan = (Plan){.weight = 1.0, .text = each->text, .proposer = c->draft, .why = LOSES,
                       .kind = c->draft_kind, .behind = each->behind, .is_drafted = c->draft >= 0};
        int most = c->draft < 0 ? 0 : each->room < c->max_k ? each->room : c->max_k;
        for (int at = 0; at < c->width; at++) gains[at] = 0.0;
        if (most > 0)
            expect_gains(c->kinds + c->draft_kind, c->texts + each->text, c->draft, most, gains);
    }
}

/* What it takes to get a token, of late: less for those that get many in a round. */
static void set_values(const Controller *c, const Work *work) {
    for (int row = 0; row < c->num; row++) {
        const Text *text = c->texts + work->plans[row].text;
        double lateness = work->candidates[row].lateness;
        if (lateness > 1) work->plans[row].weight = fmin(lateness, MOST_WEIGHT);
        work->values[row] = c->plain / c->num * text->seconds / text->tokens *
                            (text->is_off ? DAMPED : 1.0) * work->plans[row].weight;
    }
}

/* What drafts of a row are worth, each token at `price`, and how many are worth anything. */
static double worth_of(const Controller *c, const double *gains, double value, double price,
                       int *count) {
    double worth = 0.0;
    *count = 0;
    for (int at = 0; at < c->width && gains[at] * value > price; at++, ++*count)
        worth += gains[at] * value - price;
    return worth;
}

/* A draft that has not read a text reads it first. What that takes comes off what it is expected to
 * give, spread over the rounds that the text may still have. */
static void charge_reading(const Controller *c, const Work *work) {
    for (int row = 0; row < c->num; row++) {
        const Candidate *each = work->candidates + row;
        if (each->behind <= FEW_BEHIND) continue;
        double *gains = work->gains + (size_t)row * c->width, tokens = 1.0;
        int count, left = each->left < HORIZON ? each->left : HORIZON;
        double worth = worth_of(c, gains, work->values[row], c->price + c->prices.per_token, &count);
        for (int at = 0; at < c->width; at++) tokens += gains[at];
        double charge = c->prices.catch_up * each->behind * tokens / (left > 1 ? left : 1);
        double kept = fmax(1 - charge / fmax(worth, TINY), TINY); /* never 0: it may be probed */
        for (int at = 0; at < c->width; at++) gains[at] *= kept;
    }
}

/* Takes the best lookup where it is worth more than the draft, at the price that a token had in the
 * last round. */
static void look_up(const Controller *c, const Work *work) {
    for (int row = 0; row < c->num; row++) {
        const Candidate *each = work->candidates + row;
        Plan *plan = work->plans + row;
        double *gains = work->gains + (size_t)row * c->width, own[POSITIONS], best = -1.0;
        int count;
        if (each->room <= 0 || !each->num_lookups) continue;
        if (plan->is_drafted) {
            best = worth_of(c, gains, work->values[row], c->price + c->prices.per_token, &count);
            best -= (c->prices.overhead + c->prices.per_depth * count) / c->num;
        }
        for (int at = 0; at < each->num_lookups; at++) {
            const Lookup *lookup = each->lookups + at;
            int length = lookup->length < each->room ? lookup->length : each->room;
            length = length < c->width ? length : c->width;
            if (length <= 0) continue;
            memset(own, 0, sizeof own);
            expect_gains(c->kinds + lookup->kind, c->texts + each->text, lookup->proposer, length,
                         own);
            double worth = worth_of(c, own, work->values[row], c->price, &count);
            if (worth <= best) continue;
            best = worth;
            memcpy(gains, own, c->width * sizeof *gains);
            plan->proposer = lookup->proposer;
            plan->kind = lookup->kind;
            plan->is_drafted = 0;
        }
    }
}

/* Of an allocation. */
typedef struct {
    int drafted, depth, by_draft; /* tokens */
} Total;

static Total sum_up(const Controller *c, const Work *work) {
    Total total = {0};
    for (int row = 0; row < c->num; row++) {
        int length = work->lengths[row];
        total.drafted += length;
        if (!length || !work->is_drafted[row]) continue;
        total.by_draft += length;
        total.depth = length > total.depth ? length : total.depth;
    }
    return total;
}

/* Plain steps. */
static double lag_allowed(const Text *text, int left) {
    return LATER * (text->written + (left < HORIZON ? left : HORIZON));
}

static double expected_tokens(const Controller *c, const Work *work, int row) {
    double tokens = 1.0;
    for (int at = 0; at < work->lengths[row]; at++)
        tokens += work->gains[(size_t)row * c->width + at];
    return tokens;
}

/* The best allocation that holds nobody up for longer than allowed; whether that took anything from
 * anybody. Drafts of some make a step longer for all: a text without any waits for them, and where
 * that goes on it ends later than without speculation, however many tokens a second the batch
 * writes. Where all together gain much, some may wait. (What reading takes was charged.) */
static int allocate(Controller *c, const Work *work, double *price) {
    double others = work->verification[0] - c->plain; /* seconds, of prompts */
    for (int row = 0; row < c->num; row++) work->is_drafted[row] = work->plans[row].is_drafted;
    Offers offers = {.gains = work->gains, .values = work->values,
                     .verification = work->verification, .is_drafted = work->is_drafted,
                     .prices = c->prices, .pace = 1.0, .most_seconds = INFINITY, .num = c->num,
                     .width = c->width, .memory = work->offered};
    for (int try = 0; try < MOST_TRIES; try++) {
        if (!allocate_drafts(&offers, work->lengths, price)) return try > 0;
        Total total = sum_up(c, work);
        double least = INFINITY, tokens = 0.0;
        double seconds = work->verification[total.drafted] +
                         drafting_seconds(&c->prices, total.depth, total.by_draft, 0) - others;
        for (int row = 0; row < c->num; row++) {
            const Candidate *each = work->candidates + row;
            const Text *text = c->texts + each->text;
            double own = expected_tokens(c, work, row);
            tokens += own / c->num;
            if (each->lateness > 0 && each->lateness < 1) continue; /* in time by its objective */
            double allowed = lag_allowed(text, each->left);
            least = fmin(least, c->plain * (own + fmax(allowed - text->lag, 0.0)));
        }
        if (seconds <= least + TINY * c->plain || tokens * c->plain >= LARGE_GAIN * seconds)
            return try > 0;
        offers.most_seconds = others + least;
    }
    memset(work->lengths, 0, (size_t)c->num * sizeof *work->lengths);
    *price = 0.0;
    return 1;
}

static double remembered(double before, double now) { return MEMORY * before + (1 - MEMORY) * now; }

/* What each is expected to get in this round, and its share of the seconds: those of its own draft
 * tokens, and an equal part of the rest. Those that stop are probed soon. */
static void account(Controller *c, const Work *work, double price) {
    Total total = sum_up(c, work);
    double seconds = work->verification[total.drafted] - work->verification[0] + c->plain +
                     drafting_seconds(&c->prices, total.depth, total.by_draft, 0);
    /* The next token may cost more than those before it did. */
    double each = total.drafted ? fmin(price, (seconds - c->plain) / total.drafted) : 0.0;
    for (int row = 0; row < c->num; row++) {
        Plan *plan = work->plans + row;
        Text *text = c->texts + plan->text;
        int length = work->lengths[row];
        double share = each * length + (seconds - each * total.drafted) / c->num;
        plan->expected = expected_tokens(c, work, row);
        text->seconds = remembered(text->seconds, total.drafted ? share * c->num / c->plain : 1.0);
        text->tokens = remembered(text->tokens, total.drafted ? plan->expected : 1.0);
        if (!length && !text->is_off) {
            text->gap = FIRST_GAP;
            text->due = c->now + FIRST_GAP;
        }
        text->is_off = !length;
        if (length) {
            plan->k = length;
            plan->why = PAYS;
            plan->floor = price / fmax(work->values[row], TINY);
        } else if (work->candidates[row].room <= 0) {
            plan->why = NO_ROOM;
        } else if (plan->proposer < 0) {
            plan->why = NO_PROPOSER;
        }
    }
}

/* The row that waits longest for a probe among those that are due; -1: none. */
static int next_due(const Controller *c, const Work *work) {
    int found = -1;
    for (int row = 0; row < c->num; row++) {
        const Plan *plan = work->plans + row;
        const Text *text = c->texts + plan->text;
        if (plan->why != LOSES || text->due > c->now) continue;
        if (!(work->gains[(size_t)row * c->width] > 0)) continue;
        if (found < 0 || text->due < c->texts[work->plans[found].text].due) found = row;
    }
    return found;
}

/* One token for some without drafts: as many as there is money for. */
static void probe(Controller *c, const Work *work) {
    Total total = sum_up(c, work);
    int most = c->num * c->width, drafted = total.drafted, is_drafting = total.by_draft > 0;
    while (drafted < most) {
        double seconds = fmax(work->verification[drafted + 1] - work->verification[drafted], 0.0);
        int row = seconds > c->money ? -1 : next_due(c, work);
        if (row < 0) return;
        Plan *plan = work->plans + row;
        if (plan->is_drafted) {
            seconds += c->prices.per_token + c->prices.catch_up * plan->behind;
            if (!is_drafting) seconds += c->prices.overhead + c->prices.per_depth;
        }
        if (seconds > c->plain) { /* so much is never saved */
            c->texts[plan->text].due = c->now + LONGEST_GAP;
            continue;
        }
        if (seconds > c->money) return;
        c->money -= seconds;
        is_drafting |= plan->is_drafted;
        plan->k = 1;
        plan->why = PROBE;
        drafted++;
    }
}

void plan_round(Controller *c, const Candidate *candidates, int32_t num, int32_t other_tokens,
                Plan *plans) {
    double price = 0.0;
    c->num = num;
    c->tokens = num + other_tokens;
    c->width = width_of(c, candidates, num);
    c->context = 0.0;
    for (int row = 0; row < num; row++) c->context += candidates[row].context / num;
    size_t items = (size_t)num * c->width;
    Work work = {.candidates = candidates, .plans = plans, .offered = (Offered *)c->memory};
    work.gains = c->memory + 2 * items;
    work.verification = work.gains + items;
    work.values = work.verification + items + 1;
    work.lengths = (int32_t *)(work.values + num);
    work.is_drafted = work.lengths + num;
    for (size_t at = 0; at <= items; at++)
        work.verification[at] = step_seconds(c, c->tokens + (int)at);
    c->without = work.verification[0];
    c->plain = other_tokens ? step_seconds(c, num) : c->without;
    expect_drafts(c, &work);
    set_values(c, &work);
    charge_reading(c, &work);
    look_up(c, &work);
    memset(work.lengths, 0, (size_t)num * sizeof *work.lengths);
    int is_limited = c->is_held_back ? 0 : allocate(c, &work, &price);
    if (price) c->price = price;
    account(c, &work, price);
    probe(c, &work);
    for (int row = 0; row < num && is_limited; row++) {
        double cost = work.verification[1] - work.verification[0];
        cost += plans[row].is_drafted ? c->prices.per_token : 0.0;
        int pays = work.gains[(size_t)row * c->width] * work.values[row] > cost;
        if (plans[row].why == LOSES && pays) plans[row].why = HOLDS_UP;
    }
}

void learn_round(Controller *c, const Plan *plans, const Outcome *outcomes, int32_t num,
                 Round *rounds, Settled *settled) {
    int count = 0, depth = 0, by_draft = 0, behind = 0, drafted = 0;
    double weights = 0.0, accepted = 0.0;
    for (int row = 0; row < c->num; row++) weights += plans[row].weight;
    for (const Outcome *each = outcomes; each < outcomes + num; each++) {
        const Plan *plan = plans + each->plan;
        if (!each->drafted) continue;
        drafted += each->drafted;
        accepted += each->accepted * plan->weight;
        if (each->proposer == c->draft) {
            by_draft += each->drafted;
            behind += plan->behind;
            depth = each->drafted > depth ? each->drafted : depth;
        }
        /* What was drafted by another than the plan says is counted as tokens alone. */
        if (each->proposer != plan->proposer) continue;
        rounds[count++] = (Round){plan->text, plan->kind, plan->proposer, each->drafted,
                                  each->accepted, plan->why == PROBE};
        if (plan->why == PROBE) { /* again soon after a right guess, else after twice as long */
            Text *text = c->texts + plan->text;
            int64_t gap = 2 * text->gap < LONGEST_GAP ? 2 * text->gap : LONGEST_GAP;
            text->gap = each->accepted ? FIRST_GAP / 2 : gap;
            text->due = c->now + (each->accepted ? 1 : gap);
        }
    }
    drafted = drafted < c->num * c->width ? drafted : c->num * c->width; /* as many are tabulated */
    settled->verification = drafted ? step_seconds(c, c->tokens + drafted) : c->without;
    settled->drafting = drafting_seconds(&c->prices, depth, by_draft, behind);
    settled->emitted = 1 + (weights > 0 ? accepted / weights : 0.0);
    settled->tokens = c->tokens + drafted;
    settled->drafts = by_draft;
    double steps = 1 + (settled->verification + settled->drafting - c->without) / c->plain;
    for (const Outcome *each = outcomes; each < outcomes + num; each++) {
        const Plan *plan = plans + each->plan;
        Text *text = c->texts + plan->text;
        double tokens = 1.0, reading = 0.0;
        if (each->drafted && each->proposer == plan->proposer && plan->k) /* as far as drafted */
            tokens += (plan->expected - 1) * fmin((double)each->drafted / plan->k, 1.0);
        if (each->drafted && each->proposer == c->draft) /* its own: it gets tokens for that */
            reading = c->prices.catch_up * plan->behind / c->plain;
        text->written += tokens;
        text->lag = fmin(text->lag + steps - reading - tokens, lag_allowed(text, HORIZON));
    }
    learn_rounds(c->kinds, c->num_kinds, c->texts, rounds, count, c->now);
}
