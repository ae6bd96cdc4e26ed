/* Attention over the paged cache, and rotary positions.
 *
 * A block of keys is stored by dimension, (head_dim, 16 tokens), so that a lane belongs to one key;
 * a block of values by token. A query adds dimensions, then keys, one after the other: its bits do
 * not depend on other queries, nor on how long others' texts are. */
#pragma once

#include <stdint.h>

enum { BLOCK = 16 };  /* tokens */
enum { QUERIES = 8 }; /* that share one reading of keys, at most */

typedef struct {
    int32_t num_heads, num_kv_heads, head_dim, num_blocks, is_short; /* is_short: bfloat16 */
} CacheShape;

/* Turns the queries and keys of one row by its angles; scales the queries. `angles` (head_dim):
 * cosines, then sines. NULL: scales only. */
void rotate_row(const CacheShape *shape, float *qkv, const float *angles, float query_scale);

/* Puts one row's keys and values of one head at a slot: block * 16 + offset. */
void write_row(const CacheShape *shape, const float *qkv, int head, int64_t slot, void *keys,
               void *values);

/* Floats that `attend` needs to work with. */
int64_t attend_scratch(const CacheShape *shape, int num_keys);

/* One sequence, whose rows (stride) are at positions `first`, first + 1, … and one kv head. Of all
 * its queries, row by row, `num` <= QUERIES from `from` on attend to all keys before them and
 * themselves, at most `window` (0: all), none before `first_key` → outputs (stride). */
void attend(const CacheShape *shape, const float *qkv, int64_t stride, int from, int num, int head,
            int first, int window, int first_key, const int32_t *table, const void *keys,
            const void *values, float *scratch, float *outputs, int64_t output_stride);
