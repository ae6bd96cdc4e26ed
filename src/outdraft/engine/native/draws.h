/* Tokens of rows at temperature > 0: the highest logit + Gumbel noise of each.
 *
 * Noise is a function of a key and a token id (`sampling.uniforms`), and it is the logarithms that
 * cost. So one pass over a row computes a bound that no score exceeds, without logarithms; scores
 * are computed, in double precision, for the few tokens whose bound reaches the best. A row's token
 * is that of the highest score, the first of equal ones: it depends neither on bounds nor on other
 * rows. */
#pragma once

#include <stdint.h>

#include "threads.h"

typedef struct {
    const float *logits;  /* (rows, stride): `size` of each row count */
    int64_t stride;
    int32_t size, num_draws;
    const int32_t *ids;   /* (size): the token id of every column; NULL: its number */
    const int32_t *rows;  /* (num_draws) */
    const uint64_t *keys; /* (num_draws) */
    const uint8_t *is_cold; /* (num_draws): without noise. NULL: none */
    int32_t *columns;       /* (num_draws): those drawn. 0 where all logits are -infinity */
    float *margins;         /* (num_draws): best score above the second. NULL: not wanted */
} Draws;

/* What is no number is never drawn. Many rows are shared among the pool; 0, or 1 where there is no
 * memory. */
int draw_rows(const Draws *draws, Pool *pool);

/* (size) numbers in (0, 1) of the ids 0, 1, 2 … that noise is made of. */
void uniform_row(uint64_t key, int32_t size, float *numbers);
