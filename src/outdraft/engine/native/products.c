#include "products.h"

#include <math.h>

#include "vectors.h"

/* Rows that share one reading of a panel: as many as there are registers for. */
#if defined(__AVX512F__)
enum { FLOAT_ROWS = 12, INT_ROWS = 6 };
#else
enum { FLOAT_ROWS = 2, INT_ROWS = 1 };
#endif

/* Inputs that are added before they join the total: long sums of floats lose less so. */
enum { SUMMED = 64 };
/* Bytes between what is read and what is fetched. With several rows, or codes to unpack, a panel is
 * read too slowly for the CPU to fetch far enough ahead on its own. */
enum { AHEAD = 8192, LINE = 64 };
enum { CODES = GROUP * PANEL / 2 };                       /* bytes of a group's 4-bit codes */
enum { INT4_GROUP_BYTES = CODES + 2 * PANEL * 2 };        /* then scales and lows in 16 bits */
enum { INT8_GROUP_BYTES = GROUP * PANEL + PANEL * 2 };

INLINE int64_t panel_bytes(int format, int num_inputs) {
    switch (format) {
        case FLOAT32: return (int64_t)num_inputs * PANEL * 4;
        case BFLOAT16: return (int64_t)num_inputs * PANEL * 2;
        case INT8: return (int64_t)(num_inputs / GROUP) * INT8_GROUP_BYTES;
        default: return (int64_t)(num_inputs / GROUP) * INT4_GROUP_BYTES;
    }
}

int64_t packed_bytes(int format, int num_outputs, int num_inputs) {
    return (num_outputs + PANEL - 1) / PANEL * panel_bytes(format, num_inputs);
}

/* ---------------------------------------------------------------- packing */

static uint16_t to_bfloat16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* To the nearest, ties to even. */
static uint16_t to_half(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    uint32_t sign = bits >> 16 & 0x8000;
    bits &= 0x7fffffff;
    if (bits >= 0x47800000) /* 65536 and more, infinity, no number */
        return (uint16_t)(sign | 0x7c00 | (bits > 0x7f800000) << 9);
    if (bits < 0x38800000) { /* in units of 2^-24, which are those of a float in 0.5 to 1 */
        float small;
        memcpy(&small, &bits, 4);
        small += 0.5f;
        memcpy(&bits, &small, 4);
        return (uint16_t)(sign | (bits - 0x3f000000));
    }
    return (uint16_t)(sign | (bits + 0xfff + (bits >> 13 & 1) - 0x38000000) >> 13);
}

static int clamp(float value, int low, int high) {
    int whole = (int)nearbyintf(value);
    return whole < low ? low : whole > high ? high : whole;
}

static void pack_int8(int num_inputs, const float *row, int lane, uint8_t *panel) {
    for (int g = 0; g < num_inputs / GROUP; g++, panel += INT8_GROUP_BYTES, row += GROUP) {
        float most = 0;
        for (int k = 0; k < GROUP; k++) most = fmaxf(most, fabsf(row[k]));
        uint16_t *scales = (uint16_t *)(panel + GROUP * PANEL);
        scales[lane] = to_half(most / 127);
        float scale = half_to_float(scales[lane]);
        for (int k = 0; k < GROUP; k++) { /* stored without a sign: plus 128 */
            int code = scale > 0 ? clamp(row[k] / scale, -127, 127) : 0;
            panel[(k / 4) * PANEL * 4 + lane * 4 + k % 4] = (uint8_t)(code + 128);
        }
    }
}

/* Codes 0 … 15 between a group's lowest and highest value. A byte holds an input of the first half
 * of the group and one of the second. */
static void pack_int4(int num_inputs, const float *row, int lane, uint8_t *panel) {
    for (int g = 0; g < num_inputs / GROUP; g++, panel += INT4_GROUP_BYTES, row += GROUP) {
        float low = row[0], high = row[0];
        for (int k = 1; k < GROUP; k++) low = fminf(low, row[k]), high = fmaxf(high, row[k]);
        uint16_t *scales = (uint16_t *)(panel + CODES);
        scales[lane] = to_half((high - low) / 15);
        scales[PANEL + lane] = to_half(low);
        float scale = half_to_float(scales[lane]);
        low = half_to_float(scales[PANEL + lane]);
        for (int k = 0; k < GROUP; k++) {
            int code = scale > 0 ? clamp((row[k] - low) / scale, 0, 15) : 0;
            int half = k / (GROUP / 2), at = k % (GROUP / 2);
            uint8_t *byte = panel + (at / 4) * PANEL * 4 + lane * 4 + at % 4;
            *byte = (uint8_t)(half ? *byte | code << 4 : code);
        }
    }
}

void pack(int format, int num_outputs, int num_inputs, const float *weights, void *panels) {
    memset(panels, 0, (size_t)packed_bytes(format, num_outputs, num_inputs));
    for (int out = 0; out < num_outputs; out++) {
        const float *row = weights + (int64_t)out * num_inputs;
        char *panel = (char *)panels + out / PANEL * panel_bytes(format, num_inputs);
        int lane = out % PANEL;
        if (format == INT8) pack_int8(num_inputs, row, lane, (uint8_t *)panel);
        if (format == INT4) pack_int4(num_inputs, row, lane, (uint8_t *)panel);
        for (int k = 0; format < INT8 && k < num_inputs; k++) {
            if (format == FLOAT32) ((float *)panel)[k * PANEL + lane] = row[k];
            else ((uint16_t *)panel)[k * PANEL + lane] = to_bfloat16(row[k]);
        }
    }
}

static float unpack_int8(const uint8_t *panel, int lane, int k) {
    const uint16_t *scales = (const uint16_t *)(panel + GROUP * PANEL);
    return ((int)panel[k / 4 * PANEL * 4 + lane * 4 + k % 4] - 128) * half_to_float(scales[lane]);
}

static float unpack_int4(const uint8_t *panel, int lane, int k) {
    const uint16_t *scales = (const uint16_t *)(panel + CODES);
    int half = k / (GROUP / 2), at = k % (GROUP / 2);
    int code = panel[at / 4 * PANEL * 4 + lane * 4 + at % 4] >> 4 * half & 15;
    return half_to_float(scales[PANEL + lane]) + code * half_to_float(scales[lane]);
}

void unpack_row(const Product *product, int output, float *to) {
    int lane = output % PANEL, format = product->format;
    int64_t panel = output / PANEL * panel_bytes(format, product->num_inputs);
    const uint8_t *from = (const uint8_t *)product->panels + panel;
    for (int k = 0; k < product->num_inputs; k++) {
        int group = k / GROUP, at = k % GROUP;
        if (format == INT4) to[k] = unpack_int4(from + group * INT4_GROUP_BYTES, lane, at);
        else if (format == INT8) to[k] = unpack_int8(from + group * INT8_GROUP_BYTES, lane, at);
        else if (format == FLOAT32) to[k] = ((const float *)from)[k * PANEL + lane];
        else to[k] = bfloat16_to_float(((const uint16_t *)from)[k * PANEL + lane]);
    }
}

void unpack_rows(const Product *product, int32_t num, const int32_t *outputs, float *to) {
    for (int i = 0; i < num; i++)
        unpack_row(product, outputs[i], to + (int64_t)i * product->num_inputs);
}

/* ---------------------------------------------------------------- inputs */

void round_group(const Inputs *inputs, int row, int group) {
    const float *values = inputs->values + row * inputs->stride + group * GROUP;
    int64_t at = (int64_t)group * inputs->num_rows + row;
    floats a = load(values), b = load(values + LANES);
    float most = largest_of(larger(absolute(a), absolute(b)));
    float scale = most / 127, inverse = most > 0 ? 127 / most : 0;
    ints x = nearest(a * all(inverse)), y = nearest(b * all(inverse));
    typedef int8_t codes __attribute__((vector_size(16)));
    codes low = __builtin_convertvector(x, codes), high = __builtin_convertvector(y, codes);
    int8_t *to = inputs->codes + at * GROUP;
    memcpy(to, &low, 16), memcpy(to + LANES, &high, 16);
    int32_t sum = sum_of_ints(x + y);
    inputs->scales[at] = scale;
    inputs->totals[at] = scale * (float)sum;
    inputs->offsets[at] = -128 * sum;
}

/* ---------------------------------------------------------------- kernels */

/* One panel of `rows` rows; `rows` is a constant in every call, so the loops are unrolled. */
#define KERNEL INLINE void

INLINE void fetch(const void *from, int num_bytes) {
    for (int line = 0; line < num_bytes; line += LINE)
        __builtin_prefetch((const char *)from + AHEAD + line);
}

KERNEL floats_kernel(int rows, int is_short, const char *panel, const Inputs *in, int row,
                     floats results[][2]) {
    const float *x[FLOAT_ROWS];
    floats totals[FLOAT_ROWS][2];
    for (int r = 0; r < rows; r++) {
        x[r] = in->values + (row + r) * in->stride;
        totals[r][0] = totals[r][1] = all(0);
    }
    for (int from = 0; from < in->num_inputs; from += SUMMED) {
        int to = in->num_inputs - from < SUMMED ? in->num_inputs : from + SUMMED;
        floats sums[FLOAT_ROWS][2]; /* results may alias what is read: registers do not */
        for (int r = 0; r < rows; r++) sums[r][0] = sums[r][1] = all(0);
        for (int k = from; k < to; k++) {
            floats w0, w1;
            if (is_short) {
                const uint16_t *w = (const uint16_t *)panel + (int64_t)k * PANEL;
                fetch(w, PANEL * 2);
                w0 = from_bfloat16(w), w1 = from_bfloat16(w + LANES);
            } else {
                const float *w = (const float *)panel + (int64_t)k * PANEL;
                fetch(w, PANEL * 4);
                w0 = load(w), w1 = load(w + LANES);
            }
            for (int r = 0; r < rows; r++) {
                floats v = all(x[r][k]);
                sums[r][0] = fused(w0, v, sums[r][0]);
                sums[r][1] = fused(w1, v, sums[r][1]);
            }
        }
        for (int r = 0; r < rows; r++) totals[r][0] += sums[r][0], totals[r][1] += sums[r][1];
    }
    for (int r = 0; r < rows; r++) results[r][0] = totals[r][0], results[r][1] = totals[r][1];
}

INLINE bytes load_bytes(const uint8_t *from) {
    bytes v;
    memcpy(&v, from, sizeof v);
    return v;
}

INLINE int32_t four_codes(const int8_t *from) {
    int32_t four;
    memcpy(&four, from, 4);
    return four;
}

KERNEL int8_kernel(int rows, const char *panel, const Inputs *in, int row, floats results[][2]) {
    floats sums[INT_ROWS][2];
    const uint8_t *w = (const uint8_t *)panel;
    int64_t at = row;
    for (int r = 0; r < rows; r++) sums[r][0] = sums[r][1] = all(0);
    for (int g = 0; g < in->num_inputs / GROUP; g++, at += in->num_rows, w += INT8_GROUP_BYTES) {
        const int8_t *codes = in->codes + at * GROUP;
        const uint16_t *scales = (const uint16_t *)(w + GROUP * PANEL);
        fetch(w, INT8_GROUP_BYTES);
        ints part[INT_ROWS][2];
        for (int r = 0; r < rows; r++) part[r][0] = part[r][1] = all_int(in->offsets[at + r]);
        for (int j = 0; j < GROUP / 4; j++) {
            bytes w0 = load_bytes(w + j * 128), w1 = load_bytes(w + j * 128 + 64);
            for (int r = 0; r < rows; r++) {
                int32_t four = four_codes(codes + r * GROUP + 4 * j);
                part[r][0] = dot4(part[r][0], w0, four);
                part[r][1] = dot4(part[r][1], w1, four);
            }
        }
        floats scale0 = from_halves(scales), scale1 = from_halves(scales + LANES);
        for (int r = 0; r < rows; r++) {
            floats scale = all(in->scales[at + r]);
            sums[r][0] = fused(to_floats(part[r][0]), scale0 * scale, sums[r][0]);
            sums[r][1] = fused(to_floats(part[r][1]), scale1 * scale, sums[r][1]);
        }
    }
    for (int r = 0; r < rows; r++) results[r][0] = sums[r][0], results[r][1] = sums[r][1];
}

KERNEL int4_kernel(int rows, const char *panel, const Inputs *in, int row, floats results[][2]) {
    floats sums[INT_ROWS][2];
    const uint8_t *w = (const uint8_t *)panel;
    const bytes nibble = (bytes)all_int(0x0f0f0f0f);
    int64_t at = row;
    for (int r = 0; r < rows; r++) sums[r][0] = sums[r][1] = all(0);
    for (int g = 0; g < in->num_inputs / GROUP; g++, at += in->num_rows, w += INT4_GROUP_BYTES) {
        const int8_t *codes = in->codes + at * GROUP;
        const uint16_t *scales = (const uint16_t *)(w + CODES);
        fetch(w, INT4_GROUP_BYTES);
        ints part[INT_ROWS][2];
        for (int r = 0; r < rows; r++) part[r][0] = part[r][1] = all_int(0);
        for (int j = 0; j < GROUP / 8; j++) {
            bytes b0 = load_bytes(w + j * 128), b1 = load_bytes(w + j * 128 + 64);
            bytes low0 = b0 & nibble, high0 = (bytes)((shorts)b0 >> 4) & nibble;
            bytes low1 = b1 & nibble, high1 = (bytes)((shorts)b1 >> 4) & nibble;
            for (int r = 0; r < rows; r++) {
                const int8_t *four = codes + r * GROUP + 4 * j;
                int32_t first = four_codes(four), second = four_codes(four + GROUP / 2);
                part[r][0] = dot4(dot4(part[r][0], low0, first), high0, second);
                part[r][1] = dot4(dot4(part[r][1], low1, first), high1, second);
            }
        }
        floats scale0 = from_halves(scales), scale1 = from_halves(scales + LANES);
        floats low0 = from_halves(scales + PANEL), low1 = from_halves(scales + PANEL + LANES);
        for (int r = 0; r < rows; r++) {
            floats scale = all(in->scales[at + r]), total = all(in->totals[at + r]);
            sums[r][0] = fused(to_floats(part[r][0]), scale0 * scale, sums[r][0]);
            sums[r][1] = fused(to_floats(part[r][1]), scale1 * scale, sums[r][1]);
            sums[r][0] = fused(low0, total, sums[r][0]);
            sums[r][1] = fused(low1, total, sums[r][1]);
        }
    }
    for (int r = 0; r < rows; r++) results[r][0] = sums[r][0], results[r][1] = sums[r][1];
}

INLINE void compute(int rows, int format, const char *panel, const Inputs *in, int row,
                    floats sums[][2]) {
    if (format == INT4) int4_kernel(rows, panel, in, row, sums);
    else if (format == INT8) int8_kernel(rows, panel, in, row, sums);
    else floats_kernel(rows, format == BFLOAT16, panel, in, row, sums);
}

#define CASE(n) case n: compute(n, format, panel, in, row, sums); break;

#define DISPATCH(name, format_of)                                                         \
    static void name(int rows, const char *panel, const Inputs *in, int row,              \
                     floats sums[][2]) {                                                  \
        const int format = format_of;                                                     \
        switch (rows) {                                                                   \
            CASES                                                                         \
        }                                                                                 \
    }

#if defined(__AVX512F__)
#define CASES CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6)
DISPATCH(int8_rows, INT8)
DISPATCH(int4_rows, INT4)
#undef CASES
#define CASES CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8) CASE(9) CASE(10)    \
              CASE(11) CASE(12)
#else
#define CASES CASE(1)
DISPATCH(int8_rows, INT8)
DISPATCH(int4_rows, INT4)
#undef CASES
#define CASES CASE(1) CASE(2)
#endif
DISPATCH(float32_rows, FLOAT32)
DISPATCH(bfloat16_rows, BFLOAT16)

/* The first `width` outputs of a panel that is not full. */
static void put_some(const floats sums[2], const float *bias, int width, int adds, float *y) {
    float part[PANEL];
    store(part, sums[0]), store(part + LANES, sums[1]);
    for (int i = 0; i < width; i++) {
        float value = bias ? part[i] + bias[i] : part[i];
        y[i] = adds ? y[i] + value : value;
    }
}

typedef void Rows(int rows, const char *panel, const Inputs *in, int row, floats sums[][2]);

void multiply(const Product *product, const Inputs *inputs, int row, int num_rows, int from, int to,
              float *outputs, int64_t stride, int adds) {
    int end = row + num_rows;
    static Rows *const kernels[] = {float32_rows, bfloat16_rows, int8_rows, int4_rows};
    Rows *kernel = kernels[product->format];
    int most = is_rounded(product) ? INT_ROWS : FLOAT_ROWS;
    int64_t size = panel_bytes(product->format, product->num_inputs);
    for (int panel = from; panel < to; panel++) {
        const char *weights = (const char *)product->panels + panel * size;
        int first = panel * PANEL, left = product->num_outputs - first;
        int width = left < PANEL ? left : PANEL;
        for (int at = row; at < end;) {
            /* In parts of nearly one size: 8 rows are 4 and 4, not 6 and 2. */
            int parts = (end - at + most - 1) / most;
            int rows = (end - at + parts - 1) / parts;
            floats sums[FLOAT_ROWS][2];
            kernel(rows, weights, inputs, at, sums);
            for (int r = 0; r < rows; r++) {
                float *y = outputs + (at - row + r) * stride + first;
                if (width < PANEL) {
                    put_some(sums[r], product->bias ? product->bias + first : NULL, width, adds, y);
                    continue;
                }
                for (int half = 0; half < 2; half++) {
                    floats value = sums[r][half];
                    if (product->bias) value += load(product->bias + first + half * LANES);
                    store(y + half * LANES, adds ? load(y + half * LANES) + value : value);
                }
            }
            at += rows;
        }
    }
}
