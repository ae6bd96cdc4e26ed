/* What is believed of acceptance: by position for the fleet, and how each text differs.
 *
 * A draft token is refused with a chance (a hazard) that depends on its position, the kind of draft
 * and the temperature band: that is counted over the fleet. A text multiplies all hazards by a
 * factor of its own, its frailty, whose prior is Gamma(s, s) around 1 and whose posterior mean is
 *
 *     (s + refused) / (s + refused that the fleet's hazards would have given).
 *
 * The fleet counts the first rounds of each text and probes. Later rounds are of texts that were
 * kept because they win: they would flatter it.
 *
 * A draft that says how sure it is of its tokens, in grades, has a hazard by grade in place of
 * position, and what is expected before it drafts follows from how often each grade comes: at each
 * position in the fleet, and in the text of late. */
#pragma once

#include <stdint.h>

enum { BANDS = 5, POSITIONS = 16, PROPOSERS = 4, GRADES = 8 };
enum { FIRST_GAP = 4 /* rounds to a first probe */ };

/* What the fleet tells apart: a draft, or a lookup after a match of some length. `hazards` are by
 * position or, of a draft with grades, by grade. */
typedef struct {
    double first; /* its hazard before anything was seen */
    double tried[BANDS][POSITIONS], refused[BANDS][POSITIONS];
    double hazards[BANDS][POSITIONS];
    double seen[BANDS][POSITIONS][GRADES], shares[BANDS][POSITIONS][GRADES];
    int32_t is_graded;
} Kind;

typedef struct {
    double refused, expected, mean;
    int64_t last, rounds; /* of its rounds: the last, how many */
} Frailty;

/* A sequence while it is known. */
typedef struct {
    Frailty frailties[PROPOSERS];
    double tokens, seconds; /* of late: in a round; its share of that, in plain steps */
    double lag, written;    /* plain steps that it has taken more than tokens got; tokens */
    double seen[GRADES], usual[GRADES]; /* of its drafts' tokens: those of late, and the fleet's */
    int64_t due, gap;       /* rounds: of the next probe, from one to the next */
    int32_t band, is_off;   /* is_off: without drafts in the last round */
    int32_t is_probed;      /* drafted for in this round because it is due, not because it pays */
} Text;

/* A round of a text in which `drafted` tokens were verified. */
typedef struct {
    const uint8_t *grades; /* of a draft with grades: of each token */
    int32_t text, kind, proposer, drafted, accepted, is_probe;
} Round;

void kind_begin(Kind *kind, double first, int32_t is_graded);
void text_begin(Text *text, int32_t band);

/* The hazard of the text's tokens that were found at a position, or have a grade. */
double hazard_of(const Kind *kind, const Text *text, int32_t proposer, int32_t which);

/* (count) the chance of each position to be accepted with all before it. grades: (count) of the
 * tokens, where the kind has them. */
void expect_gains(const Kind *kind, const Text *text, int32_t proposer, const uint8_t *grades,
                  int32_t count, double *gains);

/* Of a draft with grades, before it drafts. A token is taken where its chance times `value` is
 * above `price`. (count) what each position is worth beyond its price, and how often it is taken. */
void expect_worth(const Kind *kind, const Text *text, int32_t proposer, int32_t count,
                  double value, double price, double *worth, double *taken);

/* Of all that was drafted for a text, verified or not. Shares are worked out anew when all texts
 * of a round are counted. */
void learn_grades(Kind *kind, Text *text, const uint8_t *grades, int32_t count);
/* How often each grade comes at each position: a position that few drafts have is taken to be as
 * the one before it, a band as all bands together. */
void work_out_shares(Kind *kind);

/* Texts of different rounds differ. */
void learn_rounds(Kind *kinds, int32_t num_kinds, Text *texts, const Round *rounds, int32_t num,
                  int64_t now);
