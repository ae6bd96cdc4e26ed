/* Matrix products y = x W^T + b for the few rows of a decoding step, and for prompts.
 *
 * Weights are packed into panels of 32 outputs. A lane belongs to one output and adds its inputs
 * one after the other, so a row's result has the same bits whatever other rows are computed with
 * it, by construction. A panel is read once for several rows. In int8 and int4 the inputs are
 * rounded to 8 bits in groups of 32 as well, and a group's sum is exact. */
#pragma once

#include <stdint.h>

enum { PANEL = 32, GROUP = 32 };
enum Format { FLOAT32, BFLOAT16, INT8, INT4 };

typedef struct {
    int32_t format, num_outputs, num_inputs;
    const void *panels;
    const float *bias;   /* or NULL */
} Product;

/* Rows of inputs as products read them. */
typedef struct {
    const float *values; /* (rows, stride) */
    int64_t stride;
    /* Of int8 and int4. Groups come first: a group's rows are read together. */
    int8_t *codes;    /* (groups, rows, 32) */
    float *scales;    /* (groups, rows) */
    float *totals;    /* (groups, rows): a group's sum */
    int32_t *offsets; /* (groups, rows): what codes without a sign make too much */
    int32_t num_inputs, num_rows;
} Inputs;

int64_t packed_bytes(int format, int num_outputs, int num_inputs);

/* weights (num_outputs, num_inputs) float32 → panels */
void pack(int format, int num_outputs, int num_inputs, const float *weights, void *panels);

/* The weights of one output, and of some. */
void unpack_row(const Product *product, int output, float *to);
void unpack_rows(const Product *product, int32_t num, const int32_t *outputs, float *to);

/* Rounds one group of a row to 8 bits. */
void round_group(const Inputs *inputs, int row, int group);

/* Panels `from` to `to` of `num_rows` rows from `row` on, whose outputs (num_rows, stride) begin
 * at output 0; `adds`: to what is there. */
void multiply(const Product *product, const Inputs *inputs, int row, int num_rows, int from, int to,
              float *outputs, int64_t stride, int adds);

static inline int num_panels(const Product *product) {
    return (product->num_outputs + PANEL - 1) / PANEL;
}

static inline int is_rounded(const Product *product) { return product->format >= INT8; }
