#include "draws.h"

#include <math.h>

#include "vectors.h"

/* Of a row. Those whose bounds all stay below the best score are not read again. */
enum { MOST_SECTIONS = 256, LEAST_LENGTH = 256 };
/* Logits of all rows: with fewer, waking a thread costs what it saves. */
enum { SHARED_LOGITS = 1 << 19 };

static const ints LANE = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

INLINE words mix(words x) {
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

/* 2^31 times a number in (0, 1]: a whole one of 31 bits, and a half. */
INLINE floats fractions(ints ids, uint64_t key) {
    words x = mix((words)ids + (uint32_t)key) ^ (uint32_t)(key >> 32);
    return to_floats((ints)(mix(x) >> 1)) + all(0.5f);
}

INLINE float uniform(float fraction) {
    float most = 1 - 0x1p-24f, number = fraction * 0x1p-31f;
    return number < most ? number : most;
}

/* A score is logit - log(-log1p(-u)), and -log1p(-u) >= u: it is at most logit - log(u). The bits
 * of a float are 2^23 times its exponent plus what its mantissa is above 1. That is log2 at powers
 * of two, and less between them. So no score is above its bound, but for rounding. */
INLINE floats bound(floats logits, floats fractions) {
    ints log2 = (ints)fractions - ((127 + 31) << 23);
    return logits - to_floats(log2) * all(0.693147181f * 0x1p-23f);
}

/* What the bound of such a score, or of a higher one, is at least. Of the logarithm, at most 22.2,
 * the bound has three roundings, of the sum one. */
INLINE float lowest_bound(double score) {
    return (float)(score * (score < 0 ? 1 + 0x1p-22 : 1 - 0x1p-22) - 0x1p-17);
}

typedef struct {
    const float *logits;
    const int32_t *ids;
    int size, length; /* length: of a section */
    uint64_t key;
} Row;

typedef struct {
    double score, second;
    int32_t column;
} Best;

static const Best NOTHING = {-INFINITY, -INFINITY, 0};

INLINE void consider(Best *best, double score, int32_t column) {
    if (score > best->score) {
        best->second = best->score;
        best->score = score;
        best->column = column;
    } else if (score > best->second) {
        best->second = score;
    }
}

/* 16 columns. What is behind the row's end has logits of -infinity. */
INLINE floats bounds_at(const Row *row, int at, int has_ids, floats *logits, floats *numbers) {
    ints ids = LANE + at;
    int count = row->size - at;
    if (count >= LANES) {
        *logits = load(row->logits + at);
        if (has_ids) memcpy(&ids, row->ids + at, sizeof ids);
    } else {
        *logits = all(-INFINITY);
        memcpy(logits, row->logits + at, count * sizeof(float));
        if (has_ids) memcpy(&ids, row->ids + at, count * sizeof(int32_t));
    }
    *numbers = fractions(ids, row->key);
    return bound(*logits, *numbers);
}

INLINE int end_of(const Row *row, int section) {
    int end = (section + 1) * row->length;
    return end < row->size ? end : row->size;
}

INLINE float highest_bound(const Row *row, int section, int has_ids) {
    floats most = all(-INFINITY), logits, numbers;
    for (int at = section * row->length; at < end_of(row, section); at += LANES)
        most = larger(bounds_at(row, at, has_ids, &logits, &numbers), most);
    return largest_of(most);
}

/* Scores of a section's columns whose bounds are `least` or more, but for those ruled out. */
static void look_at(const Row *row, int section, float least, Best *best) {
    for (int at = section * row->length; at < end_of(row, section); at += LANES) {
        floats logits, numbers, bounds = bounds_at(row, at, row->ids != NULL, &logits, &numbers);
        if (largest_of(larger(bounds, all(-INFINITY))) < least) continue;
        for (int lane = 0; lane < LANES; lane++) {
            if (!(bounds[lane] >= least) || bounds[lane] == -INFINITY) continue;
            double score = logits[lane] - log(-log1p(-(double)uniform(numbers[lane])));
            consider(best, score, at + lane);
        }
    }
}

/* `second` is right only where it is wanted. */
static Best draw_row(const Row *row, int wants_second) {
    int num = (row->size + row->length - 1) / row->length, top = 0, next = -1;
    float most[MOST_SECTIONS] = {-INFINITY};
    for (int section = 0; section < num; section++) {
        most[section] = row->ids ? highest_bound(row, section, 1) : highest_bound(row, section, 0);
        if (most[section] > most[top]) next = top, top = section;
        else if (section != top && (next < 0 || most[section] > most[next])) next = section;
    }
    if (most[top] == -INFINITY) return NOTHING;
    Best likely = NOTHING, best = NOTHING;
    look_at(row, top, most[top], &likely); /* nearly the best, if not the best */
    float least = lowest_bound(likely.score);
    if (wants_second) { /* a score of another section is no better than the second */
        Best other = NOTHING;
        if (next >= 0) look_at(row, next, most[next], &other);
        least = lowest_bound(other.score < likely.score ? other.score : likely.score);
    }
    for (int section = 0; section < num; section++)
        if (most[section] >= least) look_at(row, section, least, &best);
    return best;
}

/* The highest logit, the first of equal ones, and the second. */
static Best likeliest(const Row *row) {
    floats first = all(-INFINITY), second = first;
    int whole = row->size / LANES * LANES;
    for (int at = 0; at < whole; at += LANES) {
        floats logits = load(row->logits + at);
        floats lower = -larger(-logits, -first);
        first = larger(logits, first);
        second = larger(lower, second);
    }
    Best best = NOTHING;
    for (int lane = 0; lane < LANES; lane++) {
        consider(&best, first[lane], 0);
        consider(&best, second[lane], 0);
    }
    for (int at = whole; at < row->size; at++) consider(&best, row->logits[at], 0);
    while (best.column < row->size && row->logits[best.column] != best.score) best.column++;
    if (best.column == row->size) best.column = 0;
    return best;
}

static void draw_one(void *job, int argument, int index, int thread) {
    const Draws *draws = job;
    (void)argument, (void)thread;
    int length = (draws->size / MOST_SECTIONS + LANES) / LANES * LANES;
    Row row = {draws->logits + draws->rows[index] * draws->stride, draws->ids, draws->size,
               length > LEAST_LENGTH ? length : LEAST_LENGTH, draws->keys[index]};
    int wants_second = draws->margins != NULL, is_cold = draws->is_cold && draws->is_cold[index];
    Best best = is_cold ? likeliest(&row) : draw_row(&row, wants_second);
    draws->columns[index] = best.column;
    /* Two infinities have no difference. */
    if (wants_second) draws->margins[index] = best.score > best.second
                                                  ? (float)(best.score - best.second) : 0.0f;
}

int draw_rows(const Draws *draws, Pool *pool) {
    if (draws->num_draws * (int64_t)draws->size < SHARED_LOGITS) {
        for (int index = 0; index < draws->num_draws; index++) draw_one((void *)draws, 0, index, 0);
        return 0;
    }
    Phase *phases = pool_phases(pool, 1);
    if (!phases) return 1;
    phases[0] = (Phase){draw_one, 0, draws->num_draws};
    pool_run(pool, 1, (void *)draws);
    return 0;
}

void uniform_row(uint64_t key, int32_t size, float *numbers) {
    for (int at = 0; at < size; at += LANES) {
        floats row = fractions(LANE + at, key);
        for (int lane = 0; lane < LANES && at + lane < size; lane++)
            numbers[at + lane] = uniform(row[lane]);
    }
}
