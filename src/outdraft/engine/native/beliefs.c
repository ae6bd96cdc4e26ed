#include "beliefs.h"

#include <math.h>
#include <string.h>

/* The hazard of a band over that of all, before the band was seen: hot texts are guessed less
 * often. */
static const double HOTTER[BANDS] = {1.0, 1.0, 1.05, 1.3, 1.5};
static const double PRIOR_TRIALS = 8.0;
static const double BAND_TRIALS = 6.0;  /* what all bands together weigh beside a band's own */
static const double MOST_TRIALS = 300.0; /* more are halved: older ones count less */
static const double STRENGTH = 2.0;     /* of the frailty's prior, in refused tokens */
static const double KEPT = 0.95;        /* of a text's evidence from one of its rounds to the next */
static const double LEAST_KEPT = 0.5;   /* after a pause */
static const double LARGEST_HAZARD = 0.98;
/* Later positions have at least so much of a text's hazard at the first: the fleet's fall partly
 * because only good texts come that far. */
static const double LEAST_SHARE = 0.7;
enum { FLEET_ROUNDS = 16 /* of each text */ };

/* A position that few reached is taken to be as the one before it. */
static void work_out(Kind *kind) {
    double hazard = kind->first, sums[BANDS] = {0};
    for (int at = 0; at < POSITIONS; at++) {
        double refused = 0, tried = 0;
        for (int band = 0; band < BANDS; band++) {
            refused += kind->refused[band][at];
            tried += kind->tried[band][at];
        }
        hazard = (PRIOR_TRIALS * hazard + refused) / (PRIOR_TRIALS + tried);
        for (int band = 0; band < BANDS; band++) {
            double prior = fmin(hazard * HOTTER[band], LARGEST_HAZARD);
            double own = (BAND_TRIALS * prior + kind->refused[band][at]) /
                         (BAND_TRIALS + kind->tried[band][at]);
            kind->hazards[band][at] = own;
            kind->sums[band][at] = sums[band] += own;
        }
    }
}

void kind_begin(Kind *kind, double first) {
    memset(kind, 0, sizeof *kind);
    kind->first = first;
    work_out(kind);
}

void text_begin(Text *text, int32_t band) {
    memset(text, 0, sizeof *text);
    for (int each = 0; each < PROPOSERS; each++) text->frailties[each].mean = 1.0;
    text->tokens = text->seconds = 1.0;
    text->gap = FIRST_GAP;
    text->band = band;
}

void expect_gains(const Kind *kind, const Text *text, int32_t proposer, int32_t count,
                  double *gains) {
    double mean = text->frailties[proposer].mean, chance = 1.0, first = 0.0;
    for (int at = 0; at < count; at++) {
        double hazard = fmin(kind->hazards[text->band][at] * mean, LARGEST_HAZARD);
        if (!at) first = hazard;
        chance *= 1 - fmax(hazard, LEAST_SHARE * first);
        gains[at] = chance;
    }
}

static int32_t positions_tried(const Round *round) {
    int32_t tried = round->accepted < round->drafted ? round->accepted + 1 : round->drafted;
    return tried < POSITIONS ? tried : POSITIONS;
}

/* Evidence fades from round to round, and over a pause, but only when there is new evidence.
 * Whether the fleet counts the round. */
static int learn_frailty(Frailty *frailty, double expected, int is_refused, int64_t now) {
    double kept = fmax(pow(KEPT, (double)(now - frailty->last)), LEAST_KEPT);
    frailty->refused = frailty->refused * kept + is_refused;
    frailty->expected = frailty->expected * kept + expected;
    frailty->last = now;
    frailty->mean = (STRENGTH + frailty->refused) / (STRENGTH + frailty->expected);
    return ++frailty->rounds <= FLEET_ROUNDS;
}

/* Those who come beyond the first position are refused less than others: each counts there as much
 * as its frailty. */
static void count_round(Kind *kind, int32_t band, int32_t tried, int is_refused, double frailty) {
    for (int at = 0; at < tried; at++) kind->tried[band][at] += at ? frailty : 1.0;
    if (is_refused) kind->refused[band][tried - 1] += 1.0;
    if (kind->tried[band][0] <= MOST_TRIALS) return;
    for (int at = 0; at < POSITIONS; at++) {
        kind->tried[band][at] *= 0.5;
        kind->refused[band][at] *= 0.5;
    }
}

void learn_rounds(Kind *kinds, int32_t num_kinds, Text *texts, const Round *rounds, int32_t num,
                  int64_t now) {
    for (int each = 0; each < num_kinds; each++) {
        int is_seen = 0;
        for (const Round *round = rounds; round < rounds + num; round++) {
            if (round->kind != each) continue;
            Text *text = texts + round->text;
            Frailty *frailty = text->frailties + round->proposer;
            int32_t tried = positions_tried(round);
            int is_refused = round->accepted < round->drafted;
            /* By what was believed before this round. */
            double expected = kinds[each].sums[text->band][tried - 1], mean = frailty->mean;
            if (learn_frailty(frailty, expected, is_refused, now) | round->is_probe) {
                count_round(kinds + each, text->band, tried, is_refused, mean);
                is_seen = 1;
            }
        }
        if (is_seen) work_out(kinds + each);
    }
}
