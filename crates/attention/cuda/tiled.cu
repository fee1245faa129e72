// Kernel 1: flash attention. A block keeps a tile of queries; the keys and values come by, tile by
// tile, through shared memory; the online softmax carries the sums from one tile to the next.

#include "common.cuh"

// ANCHOR: shape
constexpr int QUERIES = 32;       // rows of a block
constexpr int KEYS = 32;          // rows of a tile of keys and values
constexpr int THREADS_A_ROW = 4;  // a row of queries belongs to four neighbouring threads
constexpr int THREADS = QUERIES * THREADS_A_ROW;

// One word of padding a row: without it, reads of a column would have to queue.
struct Shared {
    float q[QUERIES][D + 1];
    float k[KEYS][D + 1];
    float v[KEYS][D];
    float weights[QUERIES][KEYS + 1];
};
// ANCHOR_END: shape

extern "C" __constant__ int attention_forward_launch[3] = {THREADS, QUERIES, int(sizeof(Shared))};

// ANCHOR: load
// Rows `first`, `first` + 1, … of a matrix (n, D) into a tile; zeros past its end. Neighbouring
// threads read neighbouring words.
template <int rows, int stride>
__device__ void load(float (&tile)[rows][stride], const float* matrix, int first, int n) {
    for (int entry = threadIdx.x; entry < rows * D; entry += THREADS) {
        const int row = entry / D, column = entry % D;
        tile[row][column] = first + row < n ? matrix[size_t(first + row) * D + column] : 0;
    }
}
// ANCHOR_END: load

// A multiprocessor holds four blocks, so a thread may have 128 registers.
// ANCHOR: kernel
extern "C" __global__ void __launch_bounds__(THREADS, 4)
attention_forward(const float* q, const float* k, const float* v, float* output, float* lse,
                  int n_q, int n_k, float scale) {
    Shared& shared = shared_memory<Shared>();
    // The last blocks see the most keys, if the attention is causal, and so begin first.
    const int first_query = (gridDim.x - 1 - blockIdx.x) * QUERIES, head = blockIdx.y;
    const int row = threadIdx.x / THREADS_A_ROW, part = threadIdx.x % THREADS_A_ROW;
    const int i = first_query + row;
    const int seen_by_block = keys_seen_by(first_query + QUERIES - 1, n_q, n_k);
    q = head_of(q, head, n_q);
    k = head_of(k, head / GROUP, n_k), v = head_of(v, head / GROUP, n_k);
    load(shared.q, q, first_query, n_q);

    float m = MINUS_INFINITY;        // the largest score so far, in powers of two
    float sum = 0;                   // of the weights so far, relative to m
    float o[D / THREADS_A_ROW] = {}; // the row's columns part, part + 4, …
    for (int first_key = next_tile(0, KEYS, first_query, n_q, n_k); first_key < seen_by_block;
         first_key = next_tile(first_key + KEYS, KEYS, first_query, n_q, n_k)) {
        load(shared.k, k, first_key, n_k);
        load(shared.v, v, first_key, n_k);
        __syncthreads(); // the tiles are there

        // The thread's scores: keys part, part + 4, … of the tile.
        float s[KEYS / THREADS_A_ROW], tile_max = MINUS_INFINITY;
#pragma unroll
        for (int t = 0; t < KEYS / THREADS_A_ROW; ++t) {
            const int j = part + t * THREADS_A_ROW;
            float dot = 0;
            for (int c = 0; c < D; ++c)
                dot += shared.q[row][c] * shared.k[j][c];
            const int distance = i + n_k - n_q - first_key - j;
            s[t] = sees(i, first_key + j, n_q, n_k)
                       ? changed_power(LOG2_E * scale * dot, head, distance) : MINUS_INFINITY;
            tile_max = fmaxf(tile_max, s[t]);
        }

        // The online softmax: four threads agree on the new maximum; what was summed follows it.
        const float m_new = fmaxf(m, max_of_lanes<THREADS_A_ROW>(tile_max));
        const float shift = m_new == MINUS_INFINITY ? 0 : m_new; // no key seen yet
        const float correction = exp2f(m - shift);
        float tile_sum = 0;
#pragma unroll
        for (int t = 0; t < KEYS / THREADS_A_ROW; ++t) {
            const float weight = exp2f(s[t] - shift);
            shared.weights[row][part + t * THREADS_A_ROW] = weight;
            tile_sum += weight;
        }
        sum = correction * sum + sum_of_lanes<THREADS_A_ROW>(tile_sum);
        m = m_new;
        __syncwarp(); // the row's weights are there: its four threads are of one warp

#pragma unroll // an array stays in registers only where every index is known to the compiler
        for (int t = 0; t < D / THREADS_A_ROW; ++t) {
            o[t] *= correction;
            for (int j = 0; j < KEYS; ++j)
                o[t] += shared.weights[row][j] * shared.v[j][part + t * THREADS_A_ROW];
        }
        __syncthreads(); // no thread reads the tiles any more
    }

    if (i >= n_q) return;
    const float inverse = sum > 0 ? 1 / sum : 0;
#pragma unroll
    for (int t = 0; t < D / THREADS_A_ROW; ++t)
        head_of(output, head, n_q)[size_t(i) * D + part + t * THREADS_A_ROW] = inverse * o[t];
    if (part == 0) lse[size_t(head) * n_q + i] = LN_2 * (m + log2f(sum));
}
// ANCHOR_END: kernel
