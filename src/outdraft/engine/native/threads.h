/* A pool of threads that compute one job together: the caller is thread 0.
 *
 * A job is a list of phases, and a phase is a number of chunks that can be computed in any order.
 * A phase is over when its chunks are computed, not when all threads are there: a thread that lost
 * its core to another program holds up the others only while it has a chunk. Every thread takes
 * chunks of its own share first, which lie together in memory, then those that others left. Whoever
 * waits spins for a while, less when that was in vain lately, then sleeps. */
#pragma once

#include <stdint.h>

typedef struct Pool Pool;

typedef struct {
    void (*compute)(void *job, int argument, int chunk, int thread);
    int32_t argument, num_chunks;
} Phase;

Pool *pool_open(int num_threads);
void pool_close(Pool *pool);
int pool_size(const Pool *pool);

/* Room for so many phases, to be filled for the next job; NULL where there is no memory. */
Phase *pool_phases(Pool *pool, int num_phases);

/* Computes the phases one after the other. One caller at a time. */
void pool_run(Pool *pool, int num_phases, void *job);
