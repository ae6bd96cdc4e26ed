#include "work.h"

#include <math.h>
#include <stdlib.h>

#include "vectors.h"

enum { ROWS_AT_ONCE = 64 }; /* of the gates: what a thread holds before it multiplies them */
enum { CHUNK_BYTES = 1 << 15 };

struct Space {
    char *memory;
    size_t size;
};

Space *space_open(void) { return calloc(1, sizeof(Space)); }

void space_close(Space *space) {
    free(space->memory);
    free(space);
}

char *space_memory(Space *space) { return space->memory; }

/* ---------------------------------------------------------------- memory */

static void *take(Arena *arena, size_t bytes) {
    size_t at = arena->used;
    arena->used += (bytes + 63) / 64 * 64;
    return arena->base ? arena->base + at : NULL;
}

Inputs take_inputs(Arena *arena, float *values, int rows, int num_inputs) {
    size_t groups = (size_t)num_inputs / GROUP;
    Inputs inputs = {
        .values = values, .stride = num_inputs, .num_inputs = num_inputs, .num_rows = rows};
    inputs.codes = take(arena, (size_t)rows * num_inputs);
    inputs.scales = take(arena, rows * groups * sizeof(float));
    inputs.totals = take(arena, rows * groups * sizeof(float));
    inputs.offsets = take(arena, rows * groups * sizeof(int32_t));
    return inputs;
}

void lay_out(Step *step, Arena *arena) {
    const Model *model = step->model;
    size_t rows = (size_t)step->batch->num_rows, wanted = (size_t)step->batch->num_wanted;
    size_t hidden = (size_t)model->hidden_size, width = (size_t)model->intermediate_size;
    step->stream = take(arena, rows * hidden * 4);
    step->normed = take(arena, rows * step->input_size * 4);
    step->qkv = take(arena, rows * step->qkv_size * 4);
    step->attended = take(arena, rows * step->query_size * 4);
    step->middle = take(arena, rows * hidden * 4);
    step->mlp = take(arena, rows * width * 4);
    step->angles = take(arena, rows * model->cache.head_dim * 4);
    step->last = take(arena, wanted * hidden * 4);
    step->normed_in = take_inputs(arena, step->normed, (int)rows, step->input_size);
    step->attended_in = take_inputs(arena, step->attended, (int)rows, step->query_size);
    step->middle_in = take_inputs(arena, step->middle, (int)rows, (int)hidden);
    step->mlp_in = take_inputs(arena, step->mlp, (int)rows, (int)width);
    step->last_in = take_inputs(arena, step->last, (int)wanted, (int)hidden);
    step->scratch = take(arena, pool_size(step->pool) * step->scratch_size * sizeof(float));
}

int reserve(Space *space, size_t bytes) {
    if (bytes <= space->size) return 1;
    free(space->memory);
    space->size = (bytes + bytes / 4 + 4095) / 4096 * 4096;
    space->memory = aligned_alloc(4096, space->size);
    if (!space->memory) space->size = 0;
    return space->memory != NULL;
}

/* ---------------------------------------------------------------- parts of a step */

/* A multiple of 16 values. */
void norm_row(const float *x, const float *weight, int size, float eps, float *to) {
    floats sums = all(0);
    for (int i = 0; i < size; i += LANES) sums = fused(load(x + i), load(x + i), sums);
    floats scale = all(1 / sqrtf(sum_of(sums) / size + eps));
    for (int i = 0; i < size; i += LANES) store(to + i, load(x + i) * scale * load(weight + i));
}

void round_row(const Product *product, const Inputs *inputs, int row) {
    if (is_rounded(product))
        for (int group = 0; group < inputs->num_inputs / GROUP; group++)
            round_group(inputs, row, group);
}

void start_row(Step *step, int row) {
    const Model *model = step->model;
    const Batch *batch = step->batch;
    int half = model->cache.head_dim / 2, size = model->hidden_size;
    float *angles = step->angles + (int64_t)row * 2 * half;
    for (int i = 0; i < half; i++) {
        float angle = (float)batch->positions[row] * model->frequencies[i];
        angles[i] = cosf(angle), angles[half + i] = sinf(angle);
    }
    float *stream = step->stream + (int64_t)row * size;
    if (!model->token_norm) {
        unpack_row(&model->embedding, batch->tokens[row], stream);
        return;
    }
    float *normed = step->normed + (int64_t)row * 2 * size;
    const float *hidden = batch->inputs + (int64_t)row * size;
    unpack_row(&model->embedding, batch->tokens[row], stream);
    norm_row(stream, model->token_norm, size, model->eps, normed);
    norm_row(hidden, model->hidden_norm, size, model->eps, normed + size);
    memcpy(stream, model->norm_before_residual ? normed + size : hidden, size * sizeof(float));
    round_row(&model->layers[0].qkv, &step->normed_in, row);
}

void tap_row(const Step *step, int layer, int row) {
    const Batch *batch = step->batch;
    int64_t size = step->model->hidden_size;
    for (int tap = 0; tap < batch->num_taps; tap++)
        if (batch->taps[tap] == layer)
            memcpy(batch->features + (row * (int64_t)batch->num_taps + tap) * size,
                   step->stream + row * size, size * sizeof(float));
}

/* Panels that are one chunk: enough bytes, and chunks for every thread. */
static int chunk_of(const Product *product, int panels, int threads) {
    int64_t bytes = packed_bytes(product->format, PANEL, product->num_inputs);
    int chunk = (int)(CHUNK_BYTES / bytes), most = panels / (4 * threads);
    chunk = chunk > most ? most : chunk;
    return chunk < 1 ? 1 : chunk;
}

void multiply_chunk(const Step *step, const Product *product, const Inputs *inputs,
                           int num_rows, int chunk, float *outputs, int64_t stride, int adds) {
    int panels = num_panels(product), size = chunk_of(product, panels, pool_size(step->pool));
    int from = chunk * size, to = from + size < panels ? from + size : panels;
    multiply(product, inputs, 0, num_rows, from, to, outputs, stride, adds);
}

int num_chunks(const Step *step, const Product *product) {
    int panels = num_panels(product), size = chunk_of(product, panels, pool_size(step->pool));
    return (panels + size - 1) / size;
}

INLINE floats silu(floats x) { return x / (all(1) + exponential(-x)); }

static int gate_groups(const Step *step, const Layer *layer) {
    int groups = step->model->intermediate_size / PANEL;
    int size = (chunk_of(&layer->gate_up, 2 * groups, pool_size(step->pool)) + 1) / 2;
    return size;
}

int num_gate_chunks(const Step *step, const Layer *layer) {
    int groups = step->model->intermediate_size / PANEL, size = gate_groups(step, layer);
    return (groups + size - 1) / size;
}

void multiply_gates(Step *step, const Layer *layer, int chunk) {
    int width = step->model->intermediate_size, groups = width / PANEL;
    int num_rows = step->batch->num_rows, size = gate_groups(step, layer);
    float gates[ROWS_AT_ONCE][2 * PANEL];
    for (int group = chunk * size; group < (chunk + 1) * size && group < groups; group++)
        for (int row = 0; row < num_rows; row += ROWS_AT_ONCE) {
            int count = num_rows - row < ROWS_AT_ONCE ? num_rows - row : ROWS_AT_ONCE;
            for (int part = 0; part < 2; part++) {
                int panel = part * groups + group;
                multiply(&layer->gate_up, &step->middle_in, row, count, panel, panel + 1,
                         gates[0] + part * PANEL - panel * PANEL, 2 * PANEL, 0);
            }
            for (int r = 0; r < count; r++) {
                float *to = step->mlp + (int64_t)(row + r) * width + group * PANEL;
                for (int i = 0; i < PANEL; i += LANES)
                    store(to + i, silu(load(gates[r] + i)) * load(gates[r] + PANEL + i));
                if (is_rounded(&layer->down)) round_group(&step->mlp_in, row + r, group);
            }
        }
}

/* ---------------------------------------------------------------- attention */

static int rows_of(const Batch *batch, int run) {
    int end = run + 1 < batch->num_runs ? batch->first_rows[run + 1] : batch->num_rows;
    return end - batch->first_rows[run];
}

void place_row(Step *step, const Layer *layer, int row) {
    const Model *model = step->model;
    const CacheShape *cache = &model->cache;
    float *qkv = step->qkv + (int64_t)row * step->qkv_size;
    if (layer->qk_norm)
        for (int head = 0; head < cache->num_heads + cache->num_kv_heads; head++) {
            int64_t at = (int64_t)head * cache->head_dim;
            norm_row(qkv + at, layer->qk_norm + at, cache->head_dim, model->eps, qkv + at);
        }
    const float *angles = step->angles + (int64_t)row * cache->head_dim;
    rotate_row(cache, qkv, layer->rotates ? angles : NULL, model->query_scale);
    for (int head = 0; head < cache->num_kv_heads; head++)
        write_row(cache, qkv, head, step->batch->slots[row], layer->keys, layer->values);
}

/* Queries of one head that are one part: few where there would be no work for every thread. */
static int queries_of(const Step *step) {
    const CacheShape *cache = &step->model->cache;
    int queries = step->batch->num_rows * cache->num_heads, size = QUERIES;
    while (size > 1 && queries < 2 * size * pool_size(step->pool)) size /= 2;
    return size;
}

static int parts_of(const Step *step, int run, int size) {
    const CacheShape *cache = &step->model->cache;
    return (rows_of(step->batch, run) * (cache->num_heads / cache->num_kv_heads) + size - 1) / size;
}

int num_parts(const Step *step) {
    int parts = 0, size = queries_of(step);
    for (int run = 0; run < step->batch->num_runs; run++) parts += parts_of(step, run, size);
    return parts * step->model->cache.num_kv_heads;
}

void attend_part(Step *step, const Layer *layer, int chunk, int thread) {
    const Model *model = step->model;
    const Batch *batch = step->batch;
    const CacheShape *cache = &model->cache;
    int heads = cache->num_kv_heads, head = chunk % heads, part = chunk / heads;
    int run = 0, size = queries_of(step);
    for (; part >= parts_of(step, run, size); run++) part -= parts_of(step, run, size);
    int per_kv = cache->num_heads / heads, row = batch->first_rows[run];
    int from = part * size, left = rows_of(batch, run) * per_kv - from;
    int num = left < size ? left : size;
    attend(cache, step->qkv + (int64_t)row * step->qkv_size, step->qkv_size, from, num, head,
           batch->positions[row], layer->window, model->first_key,
           batch->tables + batch->first_blocks[run], layer->keys, layer->values,
           step->scratch + thread * step->scratch_size,
           step->attended + (int64_t)row * step->query_size, step->query_size);
    if (rounds_after(step, layer)) return;
    int groups = cache->head_dim / GROUP;
    for (int query = from; is_rounded(&layer->output) && query < from + num; query++)
        for (int group = 0; group < groups; group++)
            round_group(&step->attended_in, row + query / per_kv,
                        (head * per_kv + query % per_kv) * groups + group);
}

int rounds_after(const Step *step, const Layer *layer) {
    return is_rounded(&layer->output) && step->model->cache.head_dim % GROUP;
}
