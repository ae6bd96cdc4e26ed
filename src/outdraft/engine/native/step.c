#include "step.h"

#include <string.h>

#include "work.h"

#define PHASE(name) static void name(void *job, int index, int chunk, int thread)
#define BEGIN                                             \
    Step *step = job;                                     \
    const Model *model = step->model;                     \
    const Layer *layer = &model->layers[index];           \
    int64_t size = model->hidden_size;                    \
    (void)thread, (void)layer, (void)size

/* Small phases: rows of a chunk have so many numbers together that another thread is worth it. */
enum { NUMBERS = 4096 };

static int row_chunks(const Step *step, int rows) {
    int64_t chunks = (int64_t)rows * step->model->hidden_size / NUMBERS;
    return chunks < 1 ? 1 : chunks < rows ? (int)chunks : rows;
}

/* The first row of a chunk; of the one after the last, the number of rows. */
static int first_row(const Step *step, int rows, int chunk) {
    return (int)((int64_t)rows * chunk / row_chunks(step, rows));
}

#define EVERY_ROW(rows)                                                                    \
    for (int row = first_row(step, rows, chunk), end = first_row(step, rows, chunk + 1);  \
         row < end; row++)

PHASE(start) {
    BEGIN;
    EVERY_ROW(step->batch->num_rows) start_row(step, row);
}

PHASE(norm) {
    BEGIN;
    EVERY_ROW(step->batch->num_rows) {
        tap_row(step, index, row);
        norm_row(step->stream + row * size, layer->attention_norm, (int)size, model->eps,
                 step->normed + row * size);
        round_row(&layer->qkv, &step->normed_in, row);
    }
}

PHASE(project) {
    BEGIN;
    multiply_chunk(step, &layer->qkv, &step->normed_in, step->batch->num_rows, chunk, step->qkv,
                   step->qkv_size, 0);
}

PHASE(place) {
    BEGIN;
    EVERY_ROW(step->batch->num_rows) place_row(step, layer, row);
}

PHASE(attend_to) {
    BEGIN;
    attend_part(step, layer, chunk, thread);
}

PHASE(round_attended) {
    BEGIN;
    EVERY_ROW(step->batch->num_rows) round_row(&layer->output, &step->attended_in, row);
}

PHASE(join) {
    BEGIN;
    multiply_chunk(step, &layer->output, &step->attended_in, step->batch->num_rows, chunk,
                   step->stream, size, 1);
}

PHASE(norm_again) {
    BEGIN;
    EVERY_ROW(step->batch->num_rows) {
        norm_row(step->stream + row * size, layer->mlp_norm, (int)size, model->eps,
                 step->middle + row * size);
        round_row(&layer->gate_up, &step->middle_in, row);
    }
}

PHASE(gate) {
    BEGIN;
    multiply_gates(step, layer, chunk);
}

PHASE(lower) {
    BEGIN;
    multiply_chunk(step, &layer->down, &step->mlp_in, step->batch->num_rows, chunk, step->stream,
                   size, 1);
}

PHASE(tap_last) {
    BEGIN;
    EVERY_ROW(step->batch->num_rows) tap_row(step, index, row);
}

PHASE(norm_last) {
    BEGIN;
    EVERY_ROW(step->batch->num_wanted) {
        const float *from = step->stream + step->batch->wanted[row] * size;
        memcpy(step->batch->hidden + row * size, from, size * sizeof(float));
        norm_row(from, model->norm, (int)size, model->eps, step->last + row * size);
        round_row(&model->head, &step->last_in, row);
    }
}

PHASE(score_tokens) {
    BEGIN;
    multiply_chunk(step, &model->head, &step->last_in, step->batch->num_wanted, chunk,
                   step->batch->logits, model->vocab_size, 0);
}

/* Fills `phases` and returns their number. */
static int plan(Step *step, Phase *phases) {
    const Model *model = step->model;
    const Batch *batch = step->batch;
    int small = row_chunks(step, batch->num_rows), wanted = row_chunks(step, batch->num_wanted);
    int count = 0, layers = model->num_layers;
    phases[count++] = (Phase){start, 0, small};
    for (int index = 0; index < layers; index++) {
        const Layer *layer = &model->layers[index];
        if (!model->token_norm) phases[count++] = (Phase){norm, index, small};
        phases[count++] = (Phase){project, index, num_chunks(step, &layer->qkv)};
        phases[count++] = (Phase){place, index, small};
        phases[count++] = (Phase){attend_to, index, num_parts(step)};
        if (rounds_after(step, layer)) phases[count++] = (Phase){round_attended, index, small};
        phases[count++] = (Phase){join, index, num_chunks(step, &layer->output)};
        phases[count++] = (Phase){norm_again, index, small};
        phases[count++] = (Phase){gate, index, num_gate_chunks(step, layer)};
        phases[count++] = (Phase){lower, index, num_chunks(step, &layer->down)};
    }
    if (batch->num_taps && batch->taps[batch->num_taps - 1] == layers)
        phases[count++] = (Phase){tap_last, layers, small};
    if (batch->num_wanted) phases[count++] = (Phase){norm_last, 0, wanted};
    if (batch->logits && batch->num_wanted)
        phases[count++] = (Phase){score_tokens, 0, num_chunks(step, &model->head)};
    return count;
}

int run_step(const Model *model, const Batch *batch, Space *space, Pool *pool) {
    const CacheShape *cache = &model->cache;
    int longest = 0;
    for (int row = 0; row < batch->num_rows; row++)
        longest = batch->positions[row] > longest ? batch->positions[row] : longest;
    Step step = {
        .model = model,
        .batch = batch,
        .pool = pool,
        .query_size = cache->num_heads * cache->head_dim,
        .qkv_size = (cache->num_heads + 2 * cache->num_kv_heads) * cache->head_dim,
        .input_size = model->token_norm ? 2 * model->hidden_size : model->hidden_size,
        .scratch_size = attend_scratch(cache, longest + 1),
    };
    Arena arena = {0};
    lay_out(&step, &arena);
    if (!reserve(space, arena.used)) return 1;
    arena = (Arena){.base = space_memory(space)};
    lay_out(&step, &arena);
    Phase *phases = pool_phases(pool, 9 * model->num_layers + 4);
    if (!phases) return 1;
    pool_run(pool, plan(&step, phases), &step);
    return 0;
}

/* ---------------------------------------------------------------- one product */

typedef struct {
    const Product *product;
    Inputs inputs;
    int num_rows;
    float *outputs;
} Multiplication;

static void round_input(void *job, int argument, int row, int thread) {
    Multiplication *m = job;
    (void)argument, (void)thread;
    round_row(m->product, &m->inputs, row);
}

static void multiply_panel(void *job, int argument, int panel, int thread) {
    Multiplication *m = job;
    (void)argument, (void)thread;
    multiply(m->product, &m->inputs, 0, m->num_rows, panel, panel + 1, m->outputs,
             m->product->num_outputs, 0);
}

int run_product(const Product *product, int32_t num_rows, const float *inputs, float *outputs,
                Space *space, Pool *pool) {
    Arena arena = {0};
    take_inputs(&arena, NULL, num_rows, product->num_inputs);
    if (!reserve(space, arena.used)) return 1;
    arena = (Arena){.base = space_memory(space)};
    Multiplication m = {product, take_inputs(&arena, NULL, num_rows, product->num_inputs), num_rows,
                        outputs};
    m.inputs.values = inputs;
    Phase *phases = pool_phases(pool, 2);
    if (!phases) return 1;
    phases[0] = (Phase){round_input, 0, num_rows};
    phases[1] = (Phase){multiply_panel, 0, num_panels(product)};
    pool_run(pool, num_rows ? 2 : 0, &m);
    return 0;
}
