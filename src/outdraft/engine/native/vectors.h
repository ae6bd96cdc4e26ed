/* Vectors of 16 numbers, written once for every CPU: compilers split them where registers are
 * narrower. Sums have one order everywhere, and a product is fused with its sum only by `fused`. */
#pragma once

#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { LANES = 16 };

typedef float floats __attribute__((vector_size(64)));
typedef int32_t ints __attribute__((vector_size(64)));
typedef uint32_t words __attribute__((vector_size(64)));
typedef uint8_t bytes __attribute__((vector_size(64)));
typedef uint16_t shorts __attribute__((vector_size(64)));
typedef uint16_t halves __attribute__((vector_size(32)));

#define INLINE static inline __attribute__((always_inline))

INLINE floats load(const float *from) {
    floats v;
    memcpy(&v, from, sizeof v);
    return v;
}

INLINE void store(float *to, floats v) { memcpy(to, &v, sizeof v); }

INLINE floats all(float x) { return x - (floats){0}; }

INLINE ints all_int(int32_t x) { return x - (ints){0}; }

/* a * b + c, rounded once where the CPU can. */
INLINE floats fused(floats a, floats b, floats c) {
#if defined(__AVX512F__)
    return (floats)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
    __m256 x[2], y[2], z[2];
    memcpy(x, &a, 64), memcpy(y, &b, 64), memcpy(z, &c, 64);
    z[0] = _mm256_fmadd_ps(x[0], y[0], z[0]);
    z[1] = _mm256_fmadd_ps(x[1], y[1], z[1]);
    memcpy(&c, z, 64);
    return c;
#else
    return a * b + c;
#endif
}

/* Σ of four products of a byte of `a` and one of `b`, each lane's four, added to `sum`: exact. */
INLINE ints dot4(ints sum, bytes a, int32_t four) {
#if defined(__AVX512VNNI__)
    return (ints)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)a, _mm512_set1_epi32(four));
#elif defined(__AVX2__)
    __m256i x[2], s[2], signed_b = _mm256_set1_epi32(four), ones = _mm256_set1_epi16(1);
    memcpy(x, &a, 64), memcpy(s, &sum, 64);
    const __m256i low = _mm256_set1_epi16(0x00ff);
    /* Even and odd bytes apart: both in one instruction could overflow its 16 bits. */
    __m256i even_b = _mm256_srai_epi16(_mm256_slli_epi16(signed_b, 8), 8);
    __m256i odd_b = _mm256_srai_epi16(signed_b, 8);
    (void)ones;
    for (int i = 0; i < 2; i++) {
        __m256i even = _mm256_madd_epi16(_mm256_and_si256(x[i], low), even_b);
        __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(x[i], 8), odd_b);
        s[i] = _mm256_add_epi32(s[i], _mm256_add_epi32(even, odd));
    }
    memcpy(&sum, s, 64);
    return sum;
#else
    int8_t b[4];
    memcpy(b, &four, 4);
    for (int lane = 0; lane < LANES; lane++)
        for (int i = 0; i < 4; i++) sum[lane] += a[4 * lane + i] * b[i];
    return sum;
#endif
}

INLINE floats to_floats(ints v) { return __builtin_convertvector(v, floats); }

/* bfloat16 is the upper half of a float. */
INLINE floats from_bfloat16(const uint16_t *from) {
    halves h;
    memcpy(&h, from, sizeof h);
    return (floats)(__builtin_convertvector(h, ints) << 16);
}

INLINE float bfloat16_to_float(uint16_t upper) {
    uint32_t bits = (uint32_t)upper << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

INLINE float half_to_float(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = h & 0x7fff, bits;
    if (rest < 0x0400) { /* 0 and the smallest */
        float small = (float)rest * 0x1p-24f;
        return sign ? -small : small;
    }
    bits = sign | ((rest << 13) + 0x38000000u);
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

INLINE floats from_halves(const uint16_t *from) {
#if defined(__AVX512F__)
    return (floats)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)from));
#elif defined(__F16C__)
    __m256 v[2];
    v[0] = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)from));
    v[1] = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(from + 8)));
    floats wide;
    memcpy(&wide, v, 64);
    return wide;
#else
    floats v;
    for (int lane = 0; lane < LANES; lane++) v[lane] = half_to_float(from[lane]);
    return v;
#endif
}

INLINE floats larger(floats a, floats b) {
#if defined(__AVX512F__)
    return (floats)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__x86_64__) /* without a word, lanes are compared one by one */
    __m128 x[4], y[4];
    memcpy(x, &a, 64), memcpy(y, &b, 64);
    for (int i = 0; i < 4; i++) x[i] = _mm_max_ps(x[i], y[i]);
    memcpy(&a, x, 64);
    return a;
#else
    ints chosen = a > b;
    return (floats)((chosen & (ints)a) | (~chosen & (ints)b));
#endif
}

INLINE floats absolute(floats v) { return (floats)((ints)v & 0x7fffffff); }

/* The sum of all lanes, halves first. */
INLINE float sum_of(floats v) {
    float x[LANES];
    memcpy(x, &v, sizeof x);
    for (int width = LANES / 2; width; width /= 2)
        for (int i = 0; i < width; i++) x[i] += x[i + width];
    return x[0];
}

INLINE int32_t sum_of_ints(ints v) {
#if defined(__AVX512F__)
    return _mm512_reduce_add_epi32((__m512i)v);
#else
    int32_t sum = 0;
    for (int lane = 0; lane < LANES; lane++) sum += v[lane];
    return sum;
#endif
}

INLINE float largest_of(floats v) {
#if defined(__AVX512F__)
    return _mm512_reduce_max_ps((__m512)v);
#else
    float x[LANES];
    memcpy(x, &v, sizeof x);
    for (int width = LANES / 2; width; width /= 2)
        for (int i = 0; i < width; i++) x[i] = x[i] > x[i + width] ? x[i] : x[i + width];
    return x[0];
#endif
}

/* The nearest whole numbers, ties to even, of |v| < 2^22. */
INLINE ints nearest(floats v) {
    const floats magic = all(0x1.8p23f);
    return (ints)(v + magic) - (ints)magic;
}

/* e^v to one unit in the last place or two; 0 far below, infinity far above. */
INLINE floats exponential(floats v) {
    ints tiny = v < all(-87.3f), huge = v > all(88.7f);
    floats x = larger(all(-87.3f), v);
    x = (floats)((huge & (ints)all(88.7f)) | (~huge & (ints)x));
    ints power = nearest(x * all(1.44269504f));
    floats n = to_floats(power);
    x = fused(n, all(-0.693359375f), x);
    x = fused(n, all(2.12194440e-4f), x);
    floats y = all(1.9875691500e-4f);
    y = fused(y, x, all(1.3981999507e-3f));
    y = fused(y, x, all(8.3334519073e-3f));
    y = fused(y, x, all(4.1665795894e-2f));
    y = fused(y, x, all(1.6666665459e-1f));
    y = fused(y, x, all(5.0000001201e-1f));
    y = fused(y, x * x, x) + all(1.0f);
    ints half = power >> 1; /* in two steps: 2^128 is no float */
    y = y * (floats)((half + 127) << 23) * (floats)((power - half + 127) << 23);
    return (floats)(~tiny & (ints)y);
}
