#include "attention.h"

#include <math.h>

#include "vectors.h"

enum { MAX_PARTS = 16 }; /* head_dim / 16 at most */

#if defined(__AVX512F__)
enum { SUMS = 24 };
#else
enum { SUMS = 8 };
#endif

void rotate_row(const CacheShape *shape, float *qkv, const float *angles, float query_scale) {
    int half = shape->head_dim / 2;
    for (int head = 0; head < shape->num_heads + shape->num_kv_heads; head++) {
        float *x = qkv + head * shape->head_dim;
        if (angles)
            for (int i = 0; i < half; i++) {
                float a = x[i], b = x[i + half];
                x[i] = a * angles[i] - b * angles[half + i];
                x[i + half] = b * angles[i] + a * angles[half + i];
            }
        if (head < shape->num_heads)
            for (int i = 0; i < 2 * half; i++) x[i] *= query_scale;
    }
}

INLINE uint16_t to_short(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

void write_row(const CacheShape *shape, const float *qkv, int head, int64_t slot, void *keys,
               void *values) {
    int dim = shape->head_dim;
    const float *key = qkv + (shape->num_heads + head) * dim;
    const float *value = key + shape->num_kv_heads * dim;
    int64_t block = head * (int64_t)shape->num_blocks + slot / BLOCK, at = slot % BLOCK;
    if (shape->is_short) {
        uint16_t *k = (uint16_t *)keys + block * BLOCK * dim + at;
        uint16_t *v = (uint16_t *)values + (block * BLOCK + at) * dim;
        for (int i = 0; i < dim; i++) k[i * BLOCK] = to_short(key[i]), v[i] = to_short(value[i]);
    } else {
        float *k = (float *)keys + block * BLOCK * dim + at;
        float *v = (float *)values + (block * BLOCK + at) * dim;
        for (int i = 0; i < dim; i++) k[i * BLOCK] = key[i], v[i] = value[i];
    }
}

int64_t attend_scratch(const CacheShape *shape, int num_keys) {
    (void)shape;
    return (int64_t)QUERIES * ((num_keys + BLOCK - 1) / BLOCK * BLOCK);
}

INLINE floats at_block(const void *cache, int64_t at, int is_short) {
    return is_short ? from_bfloat16((const uint16_t *)cache + at) : load((const float *)cache + at);
}

typedef struct {
    const float *query[QUERIES];
    float *output[QUERIES];
    int first[QUERIES], last[QUERIES]; /* keys that it sees */
    float *scores[QUERIES];
    float sum[QUERIES];
    int num, from, to; /* blocks */
} Tile;

INLINE void score(int queries, const CacheShape *shape, const Tile *tile, int head,
                  const int32_t *table, const void *keys) {
    const int dim = shape->head_dim, is_short = shape->is_short;
    const ints lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    for (int block = tile->from; block < tile->to; block++) {
        int64_t at = (head * (int64_t)shape->num_blocks + table[block]) * BLOCK * dim;
        floats sums[QUERIES];
        for (int q = 0; q < queries; q++) sums[q] = all(0);
        for (int i = 0; i < dim; i++) {
            floats key = at_block(keys, at + i * BLOCK, is_short);
            for (int q = 0; q < queries; q++) sums[q] = fused(key, all(tile->query[q][i]), sums[q]);
        }
        for (int q = 0; q < tile->num; q++) {
            ints key = lane + block * BLOCK;
            ints seen = (key >= tile->first[q]) & (key <= tile->last[q]);
            floats hidden = all(-INFINITY);
            store(tile->scores[q] + block * BLOCK,
                  (floats)((seen & (ints)sums[q]) | (~seen & (ints)hidden)));
        }
    }
}

static void score_all(const CacheShape *shape, const Tile *tile, int head, const int32_t *table,
                      const void *keys) {
    switch (tile->num) {
        case 1: score(1, shape, tile, head, table, keys); break;
        case 2: score(2, shape, tile, head, table, keys); break;
        case 3: score(3, shape, tile, head, table, keys); break;
        case 4: score(4, shape, tile, head, table, keys); break;
        default: score(QUERIES, shape, tile, head, table, keys);
    }
}

static void weigh(Tile *tile) {
    for (int q = 0; q < tile->num; q++) {
        float *scores = tile->scores[q];
        floats most = all(-INFINITY), sums = all(0);
        for (int key = tile->from * BLOCK; key < tile->to * BLOCK; key += LANES)
            most = larger(most, load(scores + key));
        float peak = largest_of(most);
        floats highest = all(peak == -INFINITY ? 0 : peak); /* it may see no key at all */
        for (int key = tile->from * BLOCK; key < tile->to * BLOCK; key += LANES) {
            floats weight = exponential(load(scores + key) - highest);
            store(scores + key, weight);
            sums += weight;
        }
        tile->sum[q] = peak == -INFINITY ? 1 : sum_of(sums);
    }
}

INLINE void sum_values(int queries, int parts, const CacheShape *shape, const Tile *tile, int q,
                       int part, int head, const int32_t *table, const void *values) {
    const int dim = shape->head_dim, is_short = shape->is_short;
    floats sums[SUMS];
    for (int i = 0; i < queries * parts; i++) sums[i] = all(0);
    for (int block = tile->from; block < tile->to; block++) {
        int64_t at = (head * (int64_t)shape->num_blocks + table[block]) * BLOCK * dim;
        for (int key = 0; key < BLOCK; key++) {
            floats value[4];
            for (int p = 0; p < parts; p++)
                value[p] = at_block(values, at + key * dim + (part + p) * LANES, is_short);
            for (int i = 0; i < queries; i++) {
                floats weight = all(tile->scores[q + i][block * BLOCK + key]);
                for (int p = 0; p < parts; p++)
                    sums[i * parts + p] = fused(value[p], weight, sums[i * parts + p]);
            }
        }
    }
    for (int i = 0; i < queries; i++)
        for (int p = 0; p < parts; p++)
            store(tile->output[q + i] + (part + p) * LANES,
                  sums[i * parts + p] / all(tile->sum[q + i]));
}

static void sum_up(const CacheShape *shape, const Tile *tile, int head, const int32_t *table,
                   const void *values) {
    int parts = shape->head_dim / LANES;
    for (int part = 0; part < parts;) {
        int wide = parts - part >= 4 ? 4 : 1;
        for (int q = 0; q < tile->num;) {
            int left = tile->num - q;
            if (wide == 4 && left >= 4 && SUMS >= 16) {
                sum_values(4, 4, shape, tile, q, part, head, table, values);
                q += 4;
            } else if (wide == 4 && left >= 3 && SUMS >= 12) {
                sum_values(3, 4, shape, tile, q, part, head, table, values);
                q += 3;
            } else if (wide == 4) {
                sum_values(1, 4, shape, tile, q, part, head, table, values);
                q += 1;
            } else {
                sum_values(1, 1, shape, tile, q, part, head, table, values);
                q += 1;
            }
        }
        part += wide;
    }
}

void attend(const CacheShape *shape, const float *qkv, int64_t stride, int from, int num, int head,
            int first, int window, int first_key, const int32_t *table, const void *keys,
            const void *values, float *scratch, float *outputs, int64_t output_stride) {
    int dim = shape->head_dim, per_kv = shape->num_heads / shape->num_kv_heads;
    int64_t length = attend_scratch(shape, first + (from + num - 1) / per_kv + 1) / QUERIES;
    Tile tile = {.num = num, .from = INT32_MAX};
    for (int q = 0; q < QUERIES; q++) { /* those beyond `num` repeat the last */
        int query = from + (q < num ? q : num - 1);
        int row = query / per_kv, position = first + row;
        int64_t at = (head * per_kv + query % per_kv) * dim;
        tile.query[q] = qkv + row * stride + at;
        tile.output[q] = outputs + row * output_stride + at;
        tile.last[q] = position;
        tile.first[q] = window && position - window + 1 > 0 ? position - window + 1 : 0;
        if (tile.first[q] < first_key) tile.first[q] = first_key;
        tile.scores[q] = scratch + q * length;
        if (tile.first[q] / BLOCK < tile.from) tile.from = tile.first[q] / BLOCK;
        if (position / BLOCK + 1 > tile.to) tile.to = position / BLOCK + 1;
    }
    score_all(shape, &tile, head, table, keys);
    weigh(&tile);
    sum_up(shape, &tile, head, table, values);
}
