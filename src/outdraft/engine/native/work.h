/* What one step works with: its memory, and what is done to one row or one chunk of a product. */
#pragma once

#include <stddef.h>

#include "step.h"

typedef struct {
    const Model *model;
    const Batch *batch;
    Pool *pool;
    int qkv_size, query_size, input_size; /* input_size: of qkv */
    float *stream, *normed, *qkv, *attended, *middle, *mlp, *angles, *last;
    Inputs normed_in, attended_in, middle_in, mlp_in, last_in;
    float *scratch; /* of every thread */
    int64_t scratch_size;
} Step;

typedef struct {
    char *base;
    size_t used;
} Arena;

/* Measures with base NULL, then hands out. */
Inputs take_inputs(Arena *arena, float *values, int rows, int num_inputs);
void lay_out(Step *step, Arena *arena);
/* Makes the space so large; 0 where there is no memory. */
int reserve(Space *space, size_t bytes);
char *space_memory(Space *space);

void norm_row(const float *x, const float *weight, int size, float eps, float *to);
void round_row(const Product *product, const Inputs *inputs, int row);
void start_row(Step *step, int row);
void tap_row(const Step *step, int layer, int row);
void place_row(Step *step, const Layer *layer, int row);

int num_chunks(const Step *step, const Product *product);
void multiply_chunk(const Step *step, const Product *product, const Inputs *inputs, int num_rows,
                    int chunk, float *outputs, int64_t stride, int adds);
int num_gate_chunks(const Step *step, const Layer *layer);
void multiply_gates(Step *step, const Layer *layer, int chunk);
/* Some queries of one run and kv head are a part. */
int num_parts(const Step *step);
void attend_part(Step *step, const Layer *layer, int part, int thread);
/* Whether a group of what was attended to belongs to several heads: then its row is rounded when
 * all have been. */
int rounds_after(const Step *step, const Layer *layer);
