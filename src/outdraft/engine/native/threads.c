#include "threads.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#if defined(__x86_64__)
#include <immintrin.h>
#define relax() _mm_pause()
#else
#define relax() atomic_signal_fence(memory_order_seq_cst)
#endif

/* Pauses before a thread goes to sleep: up to 100 microseconds, about what waking it costs. */
enum { LEAST_SPINS = 64, MOST_SPINS = 8000 };

static const uint32_t ALL_TAKEN = UINT32_MAX;

typedef struct Memory {
    struct Memory *older; /* a late thread may still look at it */
    int size;
    Phase phases[];
} Memory;

/* Of a thread's own chunks of a phase: the number of the phase (upper half), and how many are taken.
 * A chunk is taken by a change of this word from the value under which it was seen. */
typedef struct {
    _Alignas(64) _Atomic uint64_t taken;
} Share;

struct Pool {
    _Alignas(64) _Atomic uint32_t now; /* the phase, counted from the pool's first */
    _Alignas(64) atomic_int num_computed; /* chunks of this phase */
    _Alignas(64) atomic_int num_asleep;
    _Atomic uint32_t first, end; /* phases of this job */
    _Atomic(Memory *) memory;
    _Atomic(void *) job;
    atomic_int is_closing;
    int num_threads;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    pthread_t *threads;
    Share shares[];
};

typedef struct {
    Pool *pool;
    int thread;
} Worker;

/* Waits until the phase is no longer `seen`. `spins`: the thread's own limit. */
static void wait_for_change(Pool *pool, uint32_t seen, int *spins) {
    for (int spin = 0; spin < *spins; spin++) {
        if (atomic_load_explicit(&pool->now, memory_order_acquire) != seen) {
            if (*spins < MOST_SPINS) *spins *= 2;
            return;
        }
        relax();
    }
    if (*spins > LEAST_SPINS) *spins /= 2;
    pthread_mutex_lock(&pool->mutex);
    atomic_fetch_add(&pool->num_asleep, 1);
    while (atomic_load(&pool->now) == seen && !atomic_load(&pool->is_closing))
        pthread_cond_wait(&pool->changed, &pool->mutex);
    atomic_fetch_sub(&pool->num_asleep, 1);
    pthread_mutex_unlock(&pool->mutex);
}

/* `taken`: of every thread's chunks; ALL_TAKEN where the phase is only the end of a job. */
static void set_phase(Pool *pool, uint32_t phase, uint32_t taken) {
    for (int thread = 0; thread < pool->num_threads; thread++)
        atomic_store(&pool->shares[thread].taken, (uint64_t)phase << 32 | taken);
    atomic_store(&pool->now, phase);
    if (atomic_load(&pool->num_asleep)) {
        pthread_mutex_lock(&pool->mutex);
        pthread_cond_broadcast(&pool->changed);
        pthread_mutex_unlock(&pool->mutex);
    }
}

/* A chunk that nobody has taken, of the thread's own share first; -1: there is none. */
static int take_chunk(Pool *pool, uint32_t phase, int num_chunks, int thread) {
    int64_t threads = pool->num_threads;
    for (int64_t at = 0; at < threads; at++) {
        int64_t owner = (thread + at) % threads;
        int64_t from = num_chunks * owner / threads, to = num_chunks * (owner + 1) / threads;
        uint64_t seen = atomic_load(&pool->shares[owner].taken);
        while ((uint32_t)(seen >> 32) == phase && (uint32_t)seen < to - from)
            if (atomic_compare_exchange_strong(&pool->shares[owner].taken, &seen, seen + 1))
                return (int)(from + (uint32_t)seen);
    }
    return -1;
}

/* After the last chunk of a phase. What is one chunk alone is computed here: nobody has to wake up
 * for it, and nobody else has anything to do. */
static void begin_next(Pool *pool, const Memory *memory, void *job, uint32_t phase, int thread) {
    uint32_t first = atomic_load(&pool->first), end = atomic_load(&pool->end);
    for (phase++; phase != end && memory->phases[phase - first].num_chunks == 1; phase++) {
        Phase what = memory->phases[phase - first];
        what.compute(job, what.argument, 0, thread);
    }
    set_phase(pool, phase, phase == end ? ALL_TAKEN : 0);
}

/* Computes chunks until the job is over. What is read of a phase counts only if a chunk of that
 * phase could be taken afterwards: until then it can be another job's. */
static void compute(Pool *pool, int thread, int *spins) {
    for (;;) {
        uint32_t phase = atomic_load(&pool->now), first = atomic_load(&pool->first);
        if (phase == atomic_load(&pool->end)) return;
        Memory *memory = atomic_load(&pool->memory);
        if (phase - first >= (uint32_t)memory->size) continue; /* the job changed */
        Phase what = memory->phases[phase - first];
        void *job = atomic_load(&pool->job);
        int computed = 0, chunk;
        while ((chunk = take_chunk(pool, phase, what.num_chunks, thread)) >= 0) {
            what.compute(job, what.argument, chunk, thread);
            computed++;
        }
        /* Added at once: a word that all threads change is slow. */
        if (computed &&
            atomic_fetch_add(&pool->num_computed, computed) + computed == what.num_chunks) {
            atomic_store(&pool->num_computed, 0);
            begin_next(pool, memory, job, phase, thread);
        } else {
            wait_for_change(pool, phase, spins);
        }
    }
}

static void *work_until_closed(void *argument) {
    Worker worker = *(Worker *)argument;
    Pool *pool = worker.pool;
    free(argument);
    int spins = MOST_SPINS;
    while (!atomic_load(&pool->is_closing)) {
        compute(pool, worker.thread, &spins);
        uint32_t now = atomic_load(&pool->now);
        if (now == atomic_load(&pool->end)) wait_for_change(pool, now, &spins);
    }
    return NULL;
}

Pool *pool_open(int num_threads) {
    size_t size = sizeof(Pool) + (size_t)num_threads * sizeof(Share);
    Pool *pool = aligned_alloc(64, (size + 63) / 64 * 64);
    if (!pool) return NULL;
    atomic_init(&pool->now, 0);
    atomic_init(&pool->num_computed, 0);
    atomic_init(&pool->num_asleep, 0);
    atomic_init(&pool->first, 0);
    atomic_init(&pool->end, 0);
    atomic_init(&pool->memory, NULL);
    atomic_init(&pool->job, NULL);
    atomic_init(&pool->is_closing, 0);
    for (int thread = 0; thread < num_threads; thread++)
        atomic_init(&pool->shares[thread].taken, ALL_TAKEN);
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_cond_init(&pool->changed, NULL);
    pool->num_threads = 1;
    pool->threads = calloc((size_t)num_threads, sizeof(pthread_t));
    for (int thread = 1; thread < num_threads; thread++) {
        Worker *worker = malloc(sizeof(Worker));
        *worker = (Worker){pool, thread};
        /* Where the system allows no more threads, fewer compute. */
        if (pthread_create(&pool->threads[thread], NULL, work_until_closed, worker)) {
            free(worker);
            break;
        }
        pool->num_threads++;
    }
    return pool;
}

void pool_close(Pool *pool) {
    pthread_mutex_lock(&pool->mutex);
    atomic_store(&pool->is_closing, 1);
    pthread_cond_broadcast(&pool->changed);
    pthread_mutex_unlock(&pool->mutex);
    for (int thread = 1; thread < pool->num_threads; thread++)
        pthread_join(pool->threads[thread], NULL);
    for (Memory *memory = atomic_load(&pool->memory), *older; memory; memory = older) {
        older = memory->older;
        free(memory);
    }
    pthread_mutex_destroy(&pool->mutex);
    pthread_cond_destroy(&pool->changed);
    free(pool->threads);
    free(pool);
}

int pool_size(const Pool *pool) { return pool->num_threads; }

Phase *pool_phases(Pool *pool, int num_phases) {
    Memory *memory = atomic_load(&pool->memory);
    if (memory && memory->size >= num_phases) return memory->phases;
    Memory *larger = calloc(1, sizeof(Memory) + 2 * (size_t)num_phases * sizeof(Phase));
    if (!larger) return NULL;
    larger->older = memory;
    larger->size = 2 * num_phases;
    atomic_store(&pool->memory, larger);
    return larger->phases;
}

void pool_run(Pool *pool, int num_phases, void *job) {
    static _Thread_local int spins = MOST_SPINS;
    uint32_t first = atomic_load(&pool->end) + 1;
    /* All of the phase before is taken: there is no chunk to take while the job changes. */
    atomic_store(&pool->job, job);
    atomic_store(&pool->first, first);
    atomic_store(&pool->end, first + (uint32_t)num_phases);
    set_phase(pool, first, 0);
    compute(pool, 0, &spins);
}
