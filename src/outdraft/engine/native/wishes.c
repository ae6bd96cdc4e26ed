#include <math.h>
#include <string.h>

#include "round_rows.h"

static const double MUCH = 0.5; /* tokens that a text has to expect, to be held up without them */
static const double DAMPED = 0.97; /* a token counts so much for a text without drafts of late */

/* What it takes to get a token, of late: less for those that get many in a round. */
static void set_values(const Controller *c, const Rows *rows) {
    for (int row = 0; row < c->num; row++) {
        const Text *text = c->texts + rows->candidates[row].text;
        rows->values[row] = c->plain / c->num * text->seconds / text->tokens *
                            (text->is_off ? DAMPED : 1.0) * weight_of(rows->candidates + row);
    }
}

static int most_drafted(const Controller *c, const Candidate *each) {
    if (c->draft < 0) return 0;
    return each->room < c->max_k ? each->room : c->max_k;
}

/* A draft that has not read a text reads it first. What that takes comes off what it is expected to
 * give, spread over the rounds that the text may still have. */
static double charge_of_reading(const Controller *c, const Candidate *each, double gained) {
    int left = each->left < HORIZON ? each->left : HORIZON;
    if (each->behind <= FEW_BEHIND) return 0.0;
    return c->prices.catch_up * each->behind * (1 + gained) / (left > 1 ? left : 1);
}

/* `gains` becomes what a draft of each depth is worth beyond a lookup, with each verified token at
 * `price`; `taken` the tokens of it that are verified. */
static void weigh_depths(const Controller *c, const Rows *rows, double price) {
    double ignored[POSITIONS];
    for (int row = 0; row < c->num; row++) {
        const Candidate *each = rows->candidates + row;
        double *worth = rows->gains + (size_t)row * c->width, value = rows->values[row];
        double *taken = rows->taken + (size_t)row * c->width, sum = 0.0, verified = 0.0;
        int most = most_drafted(c, each), paying;
        best_lookup(c, each, value, price, ignored, rows->rivals + row, &paying);
        rows->tokens[row] = paying;
        expect_worth(c->kinds + c->draft_kind, c->texts + each->text, c->draft, most, value,
                     price, worth, taken);
        for (int at = 0; at < most; at++) {
            sum += worth[at] - c->prices.per_token;
            verified += taken[at];
            worth[at] = sum;
            taken[at] = verified;
        }
        double gained = most ? (sum + price * verified) / value : 0.0;
        double charge = rows->rivals[row] + charge_of_reading(c, each, fmax(gained, 0.0));
        for (int at = 0; at < most; at++) worth[at] -= charge;
    }
}

/* The depth of a draft for all for whom that is worth something; 0: for nobody. And the tokens that
 * will be verified. */
static int best_depth(const Controller *c, const Rows *rows, double *tokens) {
    double best = 0.0;
    int depth = 0;
    *tokens = 0.0;
    for (int row = 0; row < c->num; row++) *tokens += rows->tokens[row];
    for (int deep = 1; deep <= c->max_k; deep++) {
        double total = -(c->prices.overhead + c->prices.per_depth * deep), verified = 0.0;
        for (int row = 0; row < c->num; row++) {
            int most = most_drafted(c, rows->candidates + row), at = deep < most ? deep : most;
            size_t item = (size_t)row * c->width + at - 1;
            int pays = at && rows->gains[item] > 0;
            if (pays) total += rows->gains[item];
            verified += pays ? rows->taken[item] : rows->tokens[row];
        }
        if (total <= best) continue;
        best = total;
        depth = deep;
        *tokens = verified;
    }
    return depth;
}

/* Whether somebody would wait too long for drafts of others, and all together gain little. */
static int holds_up(const Controller *c, const Rows *rows, int depth, double price) {
    double least = INFINITY, mean = 0.0, verified = 0.0, prompts = prompts_of_token(c);
    int drafted = 0;
    for (int row = 0; row < c->num; row++) {
        const Candidate *each = rows->candidates + row;
        const Text *text = c->texts + each->text;
        int most = most_drafted(c, each), at = depth < most ? depth : most;
        size_t item = (size_t)row * c->width + at - 1;
        double own = 1.0;
        if (at && rows->gains[item] > 0) {
            drafted += at;
            verified += rows->taken[item];
            own += (rows->gains[item] + rows->rivals[row] + c->prices.per_token * at +
                    price * rows->taken[item]) / rows->values[row];
        }
        rows->hoped[row] = own;
        mean += own / c->num;
        double spare = fmax(lag_allowed(text, each->left, prompts) - text->lag, 0.0);
        if (!is_in_time(each)) least = fmin(least, (1 + prompts) * own + spare);
    }
    double more = drafting_seconds(&c->prices, depth, drafted, 0) + price * verified;
    double steps = 1 + more / c->plain + prompts * mean;
    return steps > least + TINY && (1 + prompts) * mean < LARGE_GAIN * steps;
}

/* One token for some without drafts, as far as there is money for drafting them. */
static void wish_probes(Controller *c, const Rows *rows, Wish *wishes, int is_drafting) {
    for (int row = 0; row < c->num; row++) {
        const Candidate *each = rows->candidates + row;
        Text *text = c->texts + each->text;
        if (wishes[row].k || text->due > c->now || !text->is_off || !most_drafted(c, each))
            continue;
        if (each->num_lookups) continue; /* that is probed */
        double seconds = c->prices.per_token + c->prices.catch_up * each->behind;
        if (!is_drafting) seconds += c->prices.overhead + c->prices.per_depth;
        double verified = fmax(rows->verification[1] - rows->verification[0], 0.0);
        if (seconds + verified > c->plain) { /* so much is never saved */
            text->due = c->now + LONGEST_GAP;
            continue;
        }
        if (seconds + verified > c->money) continue;
        c->money -= seconds;
        is_drafting = 1;
        wishes[row].k = 1;
        text->is_probed = 1;
    }
}

void wish_drafts(Controller *c, const Candidate *candidates, int32_t num, int32_t other_tokens,
                 Wish *wishes) {
    double price, tokens;
    int depth = 0, chosen = 0;
    c->num = num;
    c->tokens = num + other_tokens;
    c->width = width_of(c, candidates, num);
    c->context = 0.0;
    for (int row = 0; row < num; row++) c->context += candidates[row].context / num;
    Rows rows = rows_of(c, candidates, NULL);
    size_t items = (size_t)num * c->width;
    for (size_t at = 0; at <= items; at++)
        rows.verification[at] = step_seconds(c, c->tokens + (int)at);
    c->without = rows.verification[0];
    c->plain = other_tokens ? step_seconds(c, num) : c->without;
    c->is_limited = 0;
    set_values(c, &rows);
    memset(wishes, 0, (size_t)num * sizeof *wishes);
    for (int row = 0; row < num; row++) rows.hoped[row] = 1.0;
    price = c->average > 0 ? c->average : (rows.verification[num] - c->without) / num;
    if (c->draft >= 0 && !c->is_held_back) {
        for (int pass = 0; pass < 2; pass++) { /* the second one at the price of what is taken */
            weigh_depths(c, &rows, price);
            depth = best_depth(c, &rows, &tokens);
            int whole = tokens < 1 ? 1 : tokens < items ? (int)tokens : (int)items;
            if (!pass) price = fmax(rows.verification[whole] - c->without, 0.0) / whole;
        }
        c->is_limited = depth && holds_up(c, &rows, depth, price);
    }
    for (int row = 0; row < num; row++) {
        int most = most_drafted(c, candidates + row), at = depth < most ? depth : most;
        c->texts[candidates[row].text].is_probed = 0;
        size_t item = (size_t)row * c->width + at - 1;
        int is_wanted = at > 0 && rows.gains[item] > 0;
        rows.is_wanted[row] = is_wanted && rows.taken[item] >= MUCH;
        if (!is_wanted || c->is_limited) continue;
        wishes[row].k = at;
        chosen++;
    }
    if (c->draft >= 0) wish_probes(c, &rows, wishes, chosen > 0);
    for (int row = 0; row < num; row++) {
        if (!wishes[row].k) continue;
        double more = price + c->prices.per_token + c->prices.per_depth / (chosen ? chosen : 1);
        wishes[row].floor = more / fmax(rows.values[row], TINY);
        for (int grade = 0; grade < GRADES; grade++)
            wishes[row].chances[grade] = 1 - hazard_of(c->kinds + c->draft_kind,
                                                       c->texts + candidates[row].text, c->draft,
                                                       grade);
    }
}
