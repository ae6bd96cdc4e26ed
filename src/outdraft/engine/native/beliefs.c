#include "beliefs.h"

#include <math.h>
#include <string.h>

#include "vectors.h"

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

/* Of grades, the least sure first: hazards over the kind's first one, before anything was seen. */
static const double BY_GRADE[GRADES] = {1.9, 1.7, 1.5, 1.2, 0.8, 0.5, 0.25, 0.1};
static const double SHARE_TRIALS = 24.0; /* what the position before weighs in a position's shares */
static const double OWN_TRIALS = 24.0;   /* what the fleet weighs in a text's grades */
static const double SEEN_KEPT = 0.95;    /* of a text's grades from token to token */

/* Chances of drafts, in levels: each is lower by so much. The lowest is 0.04. */
enum { LEVELS = 32 };
static const double LEVEL = 0.1, OF_A_LEVEL = 0.90483741803595957316; /* e^-0.1 */

/* A position that few reached is taken to be as the one before it; a grade has a prior of its
 * own. */
static void work_out(Kind *kind) {
    double hazard = kind->first;
    int count = kind->is_graded ? GRADES : POSITIONS;
    for (int at = 0; at < count; at++) {
        double refused = 0, tried = 0;
        for (int band = 0; band < BANDS; band++) {
            refused += kind->refused[band][at];
            tried += kind->tried[band][at];
        }
        if (kind->is_graded) hazard = fmin(kind->first * BY_GRADE[at], LARGEST_HAZARD);
        hazard = (PRIOR_TRIALS * hazard + refused) / (PRIOR_TRIALS + tried);
        for (int band = 0; band < BANDS; band++) {
            double prior = fmin(hazard * HOTTER[band], LARGEST_HAZARD);
            kind->hazards[band][at] = (BAND_TRIALS * prior + kind->refused[band][at]) /
                                      (BAND_TRIALS + kind->tried[band][at]);
        }
    }
}

void work_out_shares(Kind *kind) {
    double before[GRADES];
    for (int grade = 0; grade < GRADES; grade++) before[grade] = 1.0 / GRADES;
    for (int at = 0; at < POSITIONS; at++) {
        double of_grade[GRADES] = {0}, of_band[BANDS] = {0}, all = SHARE_TRIALS;
        for (int band = 0; band < BANDS; band++) {
            for (int grade = 0; grade < GRADES; grade++) {
                of_grade[grade] += kind->seen[band][at][grade];
                of_band[band] += kind->seen[band][at][grade];
            }
            all += of_band[band];
        }
        for (int grade = 0; grade < GRADES; grade++)
            before[grade] = (SHARE_TRIALS * before[grade] + of_grade[grade]) / all;
        for (int band = 0; band < BANDS; band++) {
            double part = 1.0 / (SHARE_TRIALS + of_band[band]);
            for (int grade = 0; grade < GRADES; grade++)
                kind->shares[band][at][grade] =
                    (SHARE_TRIALS * before[grade] + kind->seen[band][at][grade]) * part;
        }
    }
}

void kind_begin(Kind *kind, double first, int32_t is_graded) {
    memset(kind, 0, sizeof *kind);
    kind->first = first;
    kind->is_graded = is_graded;
    work_out(kind);
    work_out_shares(kind);
}

void text_begin(Text *text, int32_t band) {
    memset(text, 0, sizeof *text);
    for (int each = 0; each < PROPOSERS; each++) text->frailties[each].mean = 1.0;
    text->tokens = text->seconds = 1.0;
    text->gap = FIRST_GAP;
    text->band = band;
}

double hazard_of(const Kind *kind, const Text *text, int32_t proposer, int32_t which) {
    return fmin(kind->hazards[text->band][which] * text->frailties[proposer].mean, LARGEST_HAZARD);
}

void expect_gains(const Kind *kind, const Text *text, int32_t proposer, const uint8_t *grades,
                  int32_t count, double *gains) {
    double chance = 1.0, least = 0.0;
    for (int at = 0; at < count; at++) {
        double hazard = hazard_of(kind, text, proposer, kind->is_graded ? grades[at] : at);
        if (!at && !kind->is_graded) least = LEAST_SHARE * hazard;
        chance *= 1 - fmax(hazard, least);
        gains[at] = chance;
    }
}

/* What a token does to the chance of all so far: as many levels lower, and a part of one more. */
typedef struct {
    int whole[GRADES];
    float part[GRADES], likelier[GRADES]; /* likelier: in the text's own drafts than in the fleet's */
} Falls;

static Falls falls_of(const Kind *kind, const Text *text, int32_t proposer) {
    Falls falls;
    double seen = 0.0, usual = 0.0;
    for (int grade = 0; grade < GRADES; grade++) {
        double levels = -log(1 - hazard_of(kind, text, proposer, grade)) / LEVEL;
        falls.whole[grade] = levels < LEVELS ? (int)levels : LEVELS;
        falls.part[grade] = levels < LEVELS ? levels - falls.whole[grade] : 0.0;
        seen += text->seen[grade];
        usual += text->usual[grade];
    }
    for (int grade = 0; grade < GRADES; grade++) {
        double fleet = usual > 0 ? text->usual[grade] / usual : 1.0 / GRADES;
        falls.likelier[grade] = (OWN_TRIALS * fleet + text->seen[grade]) /
                                ((OWN_TRIALS + seen) * fmax(fleet, 1e-6));
    }
    return falls;
}

/* Shares of drafts at each level, after zeros: what falls comes from higher levels. */
typedef struct {
    float above[LEVELS + 1], at[LEVELS];
} Shares;

/* After one token more. Levels beyond are too unlikely to count. */
static void fall(const Falls *falls, const double *shares, const Shares *from, Shares *to) {
    float own[GRADES], all_own = 0.0f;
    floats sums[LEVELS / LANES] = {0};
    for (int grade = 0; grade < GRADES; grade++) {
        own[grade] = shares[grade] * falls->likelier[grade];
        all_own += own[grade];
    }
    for (int grade = 0; grade < GRADES; grade++) {
        const float *higher = from->at - falls->whole[grade];
        float far = own[grade] / all_own * falls->part[grade], near = own[grade] / all_own - far;
        for (int at = 0; at < LEVELS / LANES; at++) {
            sums[at] += load(higher + at * LANES) * all(near);
            sums[at] += load(higher + at * LANES - 1) * all(far);
        }
    }
    memcpy(to->at, sums, sizeof to->at);
}

void expect_worth(const Kind *kind, const Text *text, int32_t proposer, int32_t count,
                  double value, double price, double *worth, double *taken) {
    Shares shares[2] = {{.at = {1.0f}}, {.at = {0.0f}}};
    double beyond[LEVELS], chance = 1.0;
    int num_paying = 0;
    for (int level = 0; level < LEVELS; level++, chance *= OF_A_LEVEL) {
        beyond[level] = chance * value - price;
        if (beyond[level] > 0) num_paying = level + 1;
    }
    for (int at = 0; at < count; at++) worth[at] = taken[at] = 0.0;
    if (!num_paying || !count) return;
    Falls falls = falls_of(kind, text, proposer);
    for (int at = 0; at < count; at++) {
        const Shares *now = shares + (1 - at % 2);
        fall(&falls, kind->shares[text->band][at], shares + at % 2, shares + (1 - at % 2));
        for (int level = 0; level < num_paying; level++) {
            worth[at] += now->at[level] * beyond[level];
            taken[at] += now->at[level];
        }
    }
}

void learn_grades(Kind *kind, Text *text, const uint8_t *grades, int32_t count) {
    double(*seen)[GRADES] = kind->seen[text->band];
    for (int at = 0; at < count; at++) {
        double all = 0.0;
        seen[at][grades[at]] += 1.0;
        for (int grade = 0; grade < GRADES; grade++) {
            text->seen[grade] *= SEEN_KEPT;
            text->usual[grade] =
                text->usual[grade] * SEEN_KEPT + kind->shares[text->band][at][grade];
            all += seen[at][grade];
        }
        text->seen[grades[at]] += 1.0;
        if (all > MOST_TRIALS)
            for (int grade = 0; grade < GRADES; grade++) seen[at][grade] *= 0.5;
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

/* What is tried at a position: by its number, or by the grade of its token. */
static int32_t place_of(const Kind *kind, const Round *round, int32_t at) {
    return kind->is_graded ? round->grades[at] : at;
}

/* Those who come beyond the first position are refused less than others: each counts there as much
 * as its frailty. Grades tell them apart already. */
static void count_round(Kind *kind, const Round *round, int32_t band, int32_t tried, int is_refused,
                        double frailty) {
    double most = 0.0;
    for (int at = 0; at < tried; at++) {
        double *own = &kind->tried[band][place_of(kind, round, at)];
        *own += at && !kind->is_graded ? frailty : 1.0;
        most = fmax(most, *own);
    }
    if (is_refused) kind->refused[band][place_of(kind, round, tried - 1)] += 1.0;
    if (most <= MOST_TRIALS) return;
    for (int at = 0; at < POSITIONS; at++) {
        kind->tried[band][at] *= 0.5;
        kind->refused[band][at] *= 0.5;
    }
}

void learn_rounds(Kind *kinds, int32_t num_kinds, Text *texts, const Round *rounds, int32_t num,
                  int64_t now) {
    for (int each = 0; each < num_kinds; each++) {
        Kind *kind = kinds + each;
        int is_seen = 0;
        for (const Round *round = rounds; round < rounds + num; round++) {
            if (round->kind != each) continue;
            Text *text = texts + round->text;
            Frailty *frailty = text->frailties + round->proposer;
            int32_t tried = positions_tried(round);
            int is_refused = round->accepted < round->drafted;
            /* By what was believed before this round. */
            double expected = 0.0, mean = frailty->mean;
            for (int at = 0; at < tried; at++)
                expected += kind->hazards[text->band][place_of(kind, round, at)];
            if (learn_frailty(frailty, expected, is_refused, now) | round->is_probe) {
                count_round(kind, round, text->band, tried, is_refused, mean);
                is_seen = 1;
            }
        }
        if (is_seen) work_out(kind);
    }
}
