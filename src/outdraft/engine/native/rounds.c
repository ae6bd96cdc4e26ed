#include <math.h>
#include <string.h>

#include "round_rows.h"

static const double MEMORY = 0.9; /* of what a text gets and takes, from round to round */
static const double READING_KEPT = 0.99; /* of what reading prompts took, likewise */
enum { MOST_TRIES = 4 /* until an allocation holds nobody up */ };

/* ---------------------------------------------------------------- what is verified */

/* What the draft wrote, or a lookup where that is worth more, at the price that tokens had on average
 * in the last round. (That of one token more can be many times as high: where a step just holds as
 * many rows as share one reading of the weights.) */
static void choose_drafts(const Controller *c, const Rows *rows) {
    for (int row = 0; row < c->num; row++) {
        const Candidate *each = rows->candidates + row;
        Plan *plan = rows->plans + row;
        double *gains = rows->gains + (size_t)row * c->width, own[POSITIONS], worth, best = 0.0;
        int count;
        *plan = (Plan){.weight = weight_of(each), .text = each->text, .proposer = c->draft,
                       .why = LOSES, .kind = c->draft_kind, .num_drafted = each->num_drafted,
                       .behind = each->num_drafted ? each->behind : 0};
        for (int at = 0; at < c->width; at++) gains[at] = 0.0;
        if (each->num_drafted) {
            memcpy(plan->grades, each->grades, sizeof plan->grades);
            expect_gains(c->kinds + c->draft_kind, c->texts + each->text, c->draft, each->grades,
                         each->num_drafted, gains);
            best = worth_of(gains, c->width, rows->values[row], c->average, &count);
        }
        if (each->room <= 0) continue;
        const Lookup *lookup =
            best_lookup(c, each, rows->values[row], c->average, own, &worth, &count);
        if (!lookup || (each->num_drafted && worth <= best)) continue;
        memcpy(gains, own, c->width * sizeof *gains);
        plan->proposer = lookup->proposer;
        plan->kind = lookup->kind;
    }
}

static int total_of(const Controller *c, const Rows *rows) {
    int total = 0;
    for (int row = 0; row < c->num; row++) total += rows->lengths[row];
    return total;
}

static double expected_tokens(const Controller *c, const Rows *rows, int row) {
    double tokens = 1.0;
    for (int at = 0; at < rows->lengths[row]; at++)
        tokens += rows->gains[(size_t)row * c->width + at];
    return tokens;
}

/* The best allocation that holds nobody up for longer than allowed; whether that took anything from
 * anybody. Drafts of some make a step longer for all: a text without any waits for them, and where
 * that goes on it ends later than without speculation, however many tokens a second the batch
 * writes. Where all together gain much, some may wait. A text whose draft is not sure in this round
 * was as likely as others to get one that is: what it hoped for counts. (What reading takes was
 * charged.) */
static int allocate(Controller *c, const Rows *rows, double drafting, double *price) {
    double others = rows->verification[0] - c->plain; /* seconds, of prompts */
    double prompts = prompts_of_token(c);
    memset(rows->is_drafted, 0, (size_t)c->num * sizeof *rows->is_drafted); /* drafting is paid */
    Offers offers = {.gains = rows->gains, .values = rows->values,
                     .verification = rows->verification, .is_drafted = rows->is_drafted,
                     .pace = 1.0, .most_seconds = INFINITY, .num = c->num, .width = c->width,
                     .memory = rows->offered};
    for (int try = 0; try < MOST_TRIES; try++) {
        if (!allocate_drafts(&offers, rows->lengths, price)) return try > 0;
        double least = INFINITY, mean = 0.0;
        double seconds = rows->verification[total_of(c, rows)] + drafting - others;
        for (int row = 0; row < c->num; row++) {
            const Candidate *each = rows->candidates + row;
            const Text *text = c->texts + each->text;
            double own = expected_tokens(c, rows, row);
            mean += own / c->num;
            if (each->num_drafted) own = fmax(own, rows->hoped[row]);
            double spare = fmax(lag_allowed(text, each->left, prompts) - text->lag, 0.0);
            if (!is_in_time(each)) least = fmin(least, (1 + prompts) * own + spare);
        }
        double steps = seconds / c->plain + prompts * mean;
        if (steps <= least + TINY || (1 + prompts) * mean >= LARGE_GAIN * steps) return try > 0;
        offers.most_seconds = others + c->plain * (least - prompts * mean) - drafting;
    }
    memset(rows->lengths, 0, (size_t)c->num * sizeof *rows->lengths);
    *price = 0.0;
    return 1;
}

static double remembered(double before, double now) { return MEMORY * before + (1 - MEMORY) * now; }

/* What each is expected to get in this round, and its share of the seconds: those of its own draft
 * tokens, and an equal part of the rest. Those that stop are probed soon. */
static void account(Controller *c, const Rows *rows, double drafting, double price) {
    int total = total_of(c, rows);
    double seconds = rows->verification[total] - rows->verification[0] + c->plain + drafting;
    /* The next token may cost more than those before it did. */
    double each = total ? fmin(price, (seconds - c->plain) / total) : 0.0;
    for (int row = 0; row < c->num; row++) {
        Plan *plan = rows->plans + row;
        Text *text = c->texts + plan->text;
        int length = rows->lengths[row];
        int has_drafts = length || (plan->num_drafted && !text->is_probed);
        double share = each * length + (seconds - each * total) / c->num;
        plan->expected = expected_tokens(c, rows, row);
        text->seconds = remembered(text->seconds, total ? share * c->num / c->plain : 1.0);
        text->tokens = remembered(text->tokens, total ? plan->expected : 1.0);
        if (!has_drafts && !text->is_off) {
            text->gap = FIRST_GAP;
            text->due = c->now + FIRST_GAP;
        }
        text->is_off = !has_drafts;
        if (length) {
            plan->k = length;
            plan->why = PAYS;
        } else if (rows->candidates[row].room <= 0) {
            plan->why = NO_ROOM;
        } else if (plan->proposer < 0) {
            plan->why = NO_PROPOSER;
        }
    }
}

/* The row that waits longest for a probe among those that are due; -1: none. */
static int next_due(const Controller *c, const Rows *rows) {
    int found = -1;
    for (int row = 0; row < c->num; row++) {
        const Plan *plan = rows->plans + row;
        const Text *text = c->texts + plan->text;
        if (plan->why != LOSES || text->due > c->now || !text->is_off) continue;
        if (!(rows->gains[(size_t)row * c->width] > 0)) continue;
        if (found < 0 || text->due < c->texts[rows->plans[found].text].due) found = row;
    }
    return found;
}

/* One token for some without drafts: as many as there is money for verifying. */
static void probe(Controller *c, const Rows *rows) {
    int most = c->num * c->width, drafted = total_of(c, rows);
    while (drafted < most) {
        double seconds = fmax(rows->verification[drafted + 1] - rows->verification[drafted], 0.0);
        int row = next_due(c, rows);
        if (row < 0) return;
        Plan *plan = rows->plans + row;
        if (seconds > c->plain) { /* so much is never saved */
            c->texts[plan->text].due = c->now + LONGEST_GAP;
            continue;
        }
        if (seconds > c->money) return;
        c->money -= seconds;
        plan->k = 1;
        plan->why = PROBE;
        drafted++;
    }
}

void plan_round(Controller *c, const Candidate *candidates, Plan *plans) {
    double price = 0.0;
    Rows rows = rows_of(c, candidates, plans);
    int depth = 0, drafted = 0, behind = 0, is_limited = 0;
    for (const Candidate *each = candidates; each < candidates + c->num; each++) {
        depth = each->num_drafted > depth ? each->num_drafted : depth;
        drafted += each->num_drafted;
    }
    double drafting = drafting_seconds(&c->prices, depth, drafted, 0);
    choose_drafts(c, &rows);
    for (int row = 0; row < c->num; row++) behind += plans[row].behind;
    c->drafting = drafting_seconds(&c->prices, depth, drafted, behind);
    memset(rows.lengths, 0, (size_t)c->num * sizeof *rows.lengths);
    if (!c->is_held_back) is_limited = allocate(c, &rows, drafting, &price);
    if (price) {
        int total = total_of(c, &rows);
        c->average = (rows.verification[total] - rows.verification[0]) / total;
    }
    account(c, &rows, drafting, price);
    probe(c, &rows);
    double cost = rows.verification[1] - rows.verification[0];
    for (int row = 0; row < c->num && (is_limited || c->is_limited); row++) {
        int pays = rows.gains[(size_t)row * c->width] * rows.values[row] > cost;
        pays |= c->is_limited && rows.is_wanted[row];
        if (plans[row].why == LOSES && pays) plans[row].why = HOLDS_UP;
    }
}

/* ---------------------------------------------------------------- what became of it */

/* Of a plan as far as it was drafted. */
static double tokens_of(const Plan *plan, const Outcome *outcome) {
    if (!outcome->drafted || outcome->proposer != plan->proposer || !plan->k) return 1.0;
    return 1 + (plan->expected - 1) * fmin((double)outcome->drafted / plan->k, 1.0);
}

/* How far each is behind speculation off. `steps`: plain ones that the round took, without prompts. */
static void book_lags(Controller *c, const Plan *plans, const Outcome *outcomes, int32_t num,
                      double steps, double reading) {
    double mean = 0.0;
    for (int each = 0; each < num; each++)
        mean += tokens_of(plans + outcomes[each].plan, outcomes + each) / num;
    c->reading = READING_KEPT * c->reading + reading;
    c->writing = READING_KEPT * c->writing + mean * c->plain;
    double prompts = prompts_of_token(c);
    for (const Outcome *each = outcomes; each < outcomes + num; each++) {
        const Plan *plan = plans + each->plan;
        Text *text = c->texts + plan->text;
        double tokens = tokens_of(plan, each);
        double read = c->prices.catch_up * plan->behind / c->plain; /* it gets tokens for that */
        double lag = text->lag + steps + prompts * mean - read - (1 + prompts) * tokens;
        text->written += tokens;
        text->lag = fmin(lag, lag_allowed(text, HORIZON, prompts));
    }
}

void learn_round(Controller *c, const Plan *plans, const Outcome *outcomes, int32_t num,
                 double seconds, Round *rounds, Settled *settled) {
    int count = 0, drafted = 0, by_draft = 0;
    double weights = 0.0, accepted = 0.0;
    for (int row = 0; row < c->num; row++) {
        const Plan *plan = plans + row;
        weights += plan->weight;
        by_draft += plan->num_drafted;
        if (plan->num_drafted)
            learn_grades(c->kinds + c->draft_kind, c->texts + plan->text, plan->grades,
                         plan->num_drafted);
    }
    if (by_draft) work_out_shares(c->kinds + c->draft_kind);
    for (const Outcome *each = outcomes; each < outcomes + num; each++) {
        const Plan *plan = plans + each->plan;
        if (!each->drafted) continue;
        drafted += each->drafted;
        accepted += each->accepted * plan->weight;
        /* What was drafted by another than the plan says is counted as tokens alone. */
        if (each->proposer != plan->proposer) continue;
        rounds[count++] = (Round){plan->grades, plan->text, plan->kind, plan->proposer,
                                  each->drafted, each->accepted, plan->why == PROBE};
        if (plan->why == PROBE) { /* again soon after a right guess, else after twice as long */
            Text *text = c->texts + plan->text;
            int64_t gap = 2 * text->gap < LONGEST_GAP ? 2 * text->gap : LONGEST_GAP;
            text->gap = each->accepted ? FIRST_GAP / 2 : gap;
            text->due = c->now + (each->accepted ? 1 : gap);
        }
    }
    drafted = drafted < c->num * c->width ? drafted : c->num * c->width; /* as many are tabulated */
    settled->verification = drafted ? step_seconds(c, c->tokens + drafted) : c->without;
    settled->drafting = c->drafting;
    settled->catch_up = 0.0;
    for (int row = 0; row < c->num; row++)
        if (plans[row].behind > FEW_BEHIND)
            settled->catch_up += c->prices.catch_up * plans[row].behind;
    settled->emitted = 1 + (weights > 0 ? accepted / weights : 0.0);
    settled->tokens = c->tokens + drafted;
    settled->drafts = by_draft;
    double more = settled->verification - c->without;
    double steps = 1 + (more + settled->drafting) / c->plain;
    double reading = c->tokens > c->num ? fmax(seconds - c->plain - more, 0.0) : 0.0;
    book_lags(c, plans, outcomes, num, steps, reading);
    learn_rounds(c->kinds, c->num_kinds, c->texts, rounds, count, c->now);
}
