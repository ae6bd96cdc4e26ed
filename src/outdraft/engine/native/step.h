/* One step of a decoder or a head in one call: tokens in, logits out.
 *
 * These structures are filled from Python (`bindings.py`), field by field in this order. */
#pragma once

#include <stdint.h>

#include "attention.h"
#include "products.h"
#include "threads.h"

typedef struct {
    Product qkv, output, gate_up, down; /* gate_up: all gates, then all ups */
    const float *attention_norm, *mlp_norm;
    const float *qk_norm; /* (heads + kv_heads, head_dim), or NULL */
    void *keys, *values;
    int32_t rotates, window; /* window 0: all */
} Layer;

typedef struct {
    int32_t hidden_size, intermediate_size, vocab_size, num_layers;
    CacheShape cache;
    float eps, query_scale;
    const Layer *layers;
    const float *norm;
    Product head;
    Product embedding;  /* a token's row is that of an output; often it is `head` */
    int32_t first_key;  /* keys before it are seen by nobody */
    const float *frequencies; /* (head_dim / 2) */
    /* A head's layer reads a token's embedding beside hidden states; a decoder has NULL here. */
    const float *token_norm, *hidden_norm;
    int32_t norm_before_residual;
} Model;

typedef struct {
    int32_t num_rows, num_runs, num_wanted, num_taps;
    const int32_t *tokens, *positions, *slots; /* of every row */
    const int32_t *first_rows, *first_blocks; /* of every run; first_blocks: in `tables` */
    const int32_t *tables;
    const int32_t *wanted; /* rows whose logits are wanted */
    const int32_t *taps;   /* layers whose inputs are features, ascending */
    const float *inputs;   /* of a head: (rows, hidden) */
    float *features;       /* (rows, taps * hidden) */
    float *hidden;         /* (wanted, hidden): before the last norm */
    float *logits;         /* (wanted, vocab), or NULL */
} Batch;

typedef struct Space Space; /* memory that a model's steps work in; grows as needed */

Space *space_open(void);
void space_close(Space *space);

/* 0, or 1 where there is no memory. */
int run_step(const Model *model, const Batch *batch, Space *space, Pool *pool);

/* inputs (rows, num_inputs) → outputs (rows, num_outputs), by the whole pool. */
int run_product(const Product *product, int32_t num_rows, const float *inputs, float *outputs,
                Space *space, Pool *pool);
