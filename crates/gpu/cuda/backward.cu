// Kernel 5: the backward pass, tiled. The weights were not kept; they are computed again, tile by
// tile, from the scores and the log-sum-exp.
//
// A tile has a share in three gradients: those of its keys and values are sums over the queries,
// that of its queries is a sum over the keys. Blocks run in no order, so a sum to which several of
// them add needs atomic additions, and its last digits change from run to run. Here each sum has
// one owner: in `backward_keys` a block keeps a tile of keys and the queries come by, in
// `backward_queries` a block keeps a tile of queries and the keys come by. The price is that both
// compute the scores and the gradients of the weights: seven products a tile in place of five.
//
// Against kernel 2: four matrices lie in shared memory at once, not two, so the tiles are smaller;
// and two products of a tile do not depend on each other, so that the two halves of a block compute
// one each, side by side. Every product still comes out of registers.

#include "common.cuh"

constexpr int THREADS = 128;
constexpr int SIDE = THREADS / 2;      // a block has two sides of two warps each
constexpr int STAYING = 4096 / D;      // rows of a block: keys, or queries
constexpr int PASSING = 16;            // rows of the tiles that come by: queries, or keys
constexpr int BLOCKS = D > 32 ? 4 : 3; // a multiprocessor's; for so many an H100 has room

using Tile = float[PASSING][STAYING + 16]; // a row for each row that passes, and padding

// Side 0 is that of `scores = scale · q kᵀ`, side 1 is that of `output = weights · v`. Where keys
// stay, side 0 has k staying and q passing, side 1 has v staying and d_output passing; where
// queries stay, it is the other way round. A row is padded by one float4: eight neighbouring rows,
// read at the same column, are in different banks.
struct Shared {
    float staying[2][STAYING][D + 4];
    float passing[2][PASSING][D + 4];
    Tile weights;  // first the products q kᵀ, then A
    Tile d_scores; // first dA, then dS
    float lse[STAYING]; // of the queries of the tile, in powers of two
    float delta[STAYING];
};

extern "C" __constant__ int backward_delta_launch[3] = {THREADS, THREADS / 32, 0};
extern "C" __constant__ int backward_keys_launch[3] = {THREADS, STAYING, int(sizeof(Shared))};
extern "C" __constant__ int backward_queries_launch[3] = {THREADS, STAYING, int(sizeof(Shared))};

// delta = rowsum(dO ⊙ O), (n_q): what the softmax takes off every gradient of a row of weights. One
// row is the work of one warp.
extern "C" __global__ void __launch_bounds__(THREADS)
backward_delta(const float* output, const float* d_output, float* delta, int n_q) {
    const int i = blockIdx.x * (THREADS / 32) + threadIdx.x / 32, head = blockIdx.y;
    if (i >= n_q) return;
    const float* o_i = head_of(output, head, n_q) + size_t(i) * D;
    const float* d_o_i = head_of(d_output, head, n_q) + size_t(i) * D;
    float sum = 0;
    for (int c = threadIdx.x % 32; c < D; c += 32) sum += d_o_i[c] * o_i[c];
    sum = sum_of_lanes<32>(sum);
    if (threadIdx.x % 32 == 0) delta[size_t(head) * n_q + i] = sum;
}

// Four neighbouring numbers, by one load.
__device__ inline void fetch(float (&to)[4], const float* from) {
    const float4 x = *reinterpret_cast<const float4*>(from);
    to[0] = x.x, to[1] = x.y, to[2] = x.z, to[3] = x.w;
}

// Rows `first`, `first` + 1, … of a matrix (n, D) into shared memory; zeros past its end.
template <int rows>
__device__ void load(float (&to)[rows][D + 4], const float* matrix, int first, int n) {
    constexpr int ROW_THREADS = D / 4; // read a row, with neighbouring words for neighbours
    const int column = threadIdx.x % ROW_THREADS * 4;
#pragma unroll
    for (int step = 0; step < rows / (THREADS / ROW_THREADS); ++step) {
        const int row = threadIdx.x / ROW_THREADS + step * (THREADS / ROW_THREADS);
        float4 x = make_float4(0, 0, 0, 0);
        if (first + row < n)
            x = *reinterpret_cast<const float4*>(matrix + size_t(first + row) * D + column);
        *reinterpret_cast<float4*>(&to[row][column]) = x;
    }
}

// lse and delta of `rows` queries. A query that is not there, or has no weights (its lse is −∞),
// gets an lse of +∞: exp2(score − ∞) is 0, where −∞ would give NaN or ∞.
template <int rows>
__device__ void load_numbers(Shared& shared, const float* lse, const float* delta, int first,
                             int n_q) {
    const int row = threadIdx.x;
    if (row >= rows) return;
    const bool there = first + row < n_q && lse[first + row] != MINUS_INFINITY;
    shared.lse[row] = there ? LOG2_E * lse[first + row] : -MINUS_INFINITY;
    shared.delta[row] = there ? delta[first + row] : 0;
}

// product = passing · stayingᵀ, (PASSING, STAYING). A thread computes four rows of it and four
// columns (eight at D = 32). At D = 128 the tile doesn't have that many entries for 64 threads:
// there two threads share their entries, and each sums over half of the D columns.
//
// Lanes n and n ^ 1 read the same staying row, lanes n and n ^ 2 the same passing row: so the
// hardware serves half a warp at once. The eight staying rows that it reads are neighbours.
constexpr int SHARES = D > 64 ? D / 64 : 1;
constexpr int COLUMN_THREADS = 16 / SHARES;
constexpr int COLUMNS = STAYING / COLUMN_THREADS;

__device__ inline void multiply(Tile& product, const float (&passing)[PASSING][D + 4],
                                const float (&staying)[STAYING][D + 4]) {
    const int thread = threadIdx.x % SIDE;
    const int row = thread % 2 + thread / 32 * 2, column = thread / 2 % COLUMN_THREADS;
    const int share = thread % 32 / 2 / COLUMN_THREADS;
    float sum[4][COLUMNS] = {};
#pragma unroll 1 // two steps at once would want more than 128 registers
    for (int c = share * (D / SHARES); c < (share + 1) * (D / SHARES); c += 4) {
        float x[4][4];
#pragma unroll
        for (int r = 0; r < 4; ++r) fetch(x[r], &passing[row + 4 * r][c]);
#pragma unroll
        for (int t = 0; t < COLUMNS; ++t) {
            float y[4];
            fetch(y, &staying[column + t * COLUMN_THREADS][c]);
#pragma unroll
            for (int e = 0; e < 4; ++e)
#pragma unroll
                for (int r = 0; r < 4; ++r) sum[r][t] += x[r][e] * y[e];
        }
    }
#pragma unroll
    for (int r = 0; r < 4; ++r)
#pragma unroll
        for (int t = 0; t < COLUMNS; ++t) {
            const float total = sum_of_lanes<SHARES, 2 * COLUMN_THREADS>(sum[r][t]);
            if (share == 0) product[row + 4 * r][column + t * COLUMN_THREADS] = total;
        }
}

// The products become A, and dA becomes dS, entry by entry.
template <bool keys_stay>
__device__ void finish_entries(Shared& shared, int head, int first_query, int first_key, int n_q,
                               int n_k, float scale) {
    const int staying = threadIdx.x % STAYING;
#pragma unroll 4
    for (int passing = threadIdx.x / STAYING; passing < PASSING; passing += THREADS / STAYING) {
        const int i = keys_stay ? passing : staying, j = keys_stay ? staying : passing;
        float& weight = shared.weights[passing][staying];
        float& d_score = shared.d_scores[passing][staying];
        const bool seen = sees(first_query + i, first_key + j, n_q, n_k);

        const int distance = first_query + i + n_k - n_q - first_key - j;
        const float slope = seen ? slope_of_change(scale * weight, head, distance) : 0;

        // weights = exp(scores − lse), scores = scale · q kᵀ, changed; what is hidden has none
        const float score = seen ? changed_power(LOG2_E * scale * weight, head, distance) : 0;
        weight = seen ? exp2f(score - shared.lse[i]) : 0;
        // weights = softmax(scores): dS = A ⊙ (dA − delta)
        d_score = seen ? slope * weight * (d_score - shared.delta[i]) : 0;
    }
}

// ANCHOR: recompute
// A and dS of the tile of `staying` and `passing`. One side computes the scores and the other, at
// the same time, the gradients of the weights.
template <bool keys_stay>
__device__ void recompute(Shared& shared, int head, int first_query, int first_key, int n_q,
                          int n_k, float scale) {
    const int side = threadIdx.x / SIDE;
    __syncthreads(); // the rows are there
    // side 0: the forward pass once more: scores = scale · q kᵀ, still without the scale
    // side 1: output = weights · v: dA = dO Vᵀ
    Tile& product = side == 0 ? shared.weights : shared.d_scores;
    multiply(product, shared.passing[side], shared.staying[side]);
    __syncthreads(); // both products are there
    finish_entries<keys_stay>(shared, head, first_query, first_key, n_q, n_k, scale);
    __syncthreads(); // A and dS are there
}
// ANCHOR_END: recompute

// gradient += tileᵀ · passing, (STAYING, D), of which a thread has eight neighbouring rows, and in
// each `groups` float4 that lie half a row apart. Lanes share what they read as in `multiply`.
constexpr int GRADIENT_LANES = D / 8;
__device__ inline int gradient_row() {
    const int thread = threadIdx.x % SIDE;
    return 8 * (thread % 2 + thread / (2 * GRADIENT_LANES) * 2);
}
__device__ inline int gradient_column(int group) {
    return 4 * (threadIdx.x / 2 % GRADIENT_LANES) + group * (D / 2);
}

template <int groups>
__device__ void accumulate(float (&gradient)[8][4 * groups], const Tile& tile,
                           const float (&passing)[PASSING][D + 4], int first_group) {
#pragma unroll 2
    for (int p = 0; p < PASSING; ++p) {
        float w[2][4];
        fetch(w[0], &tile[p][gradient_row()]);
        fetch(w[1], &tile[p][gradient_row() + 4]);
#pragma unroll
        for (int group = 0; group < groups; ++group) {
            float x[4];
            fetch(x, &passing[p][gradient_column(first_group + group)]);
#pragma unroll
            for (int c = 0; c < 4; ++c)
#pragma unroll
                for (int r = 0; r < 8; ++r) gradient[r][4 * group + c] += w[r / 4][r % 4] * x[c];
        }
    }
}

// Writes the thread's part of factor · gradient from row `first` of a matrix (n, D) on.
template <int groups>
__device__ void store(const float (&gradient)[8][4 * groups], float* matrix, int first, int n,
                      int first_group, float factor) {
#pragma unroll
    for (int r = 0; r < 8; ++r) {
        const int row = first + gradient_row() + r;
        if (row >= n) return;
#pragma unroll
        for (int group = 0; group < groups; ++group) {
            const float* x = &gradient[r][4 * group];
            float* to = matrix + size_t(row) * D + gradient_column(first_group + group);
            *reinterpret_cast<float4*>(to) =
                make_float4(factor * x[0], factor * x[1], factor * x[2], factor * x[3]);
        }
    }
}

// ANCHOR: keys
// dK and dV, (n_k, D). A block keeps a tile of keys and values; the queries and the gradients of
// their outputs come by. Each side sums one of the two gradients.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
backward_keys(const float* q, const float* k, const float* v, const float* d_output,
              const float* lse, const float* delta, float* d_k, float* d_v, int n_q, int n_k,
              float scale) {
    Shared& shared = shared_memory<Shared>();
    const int first_key = blockIdx.x * STAYING, kv_head = blockIdx.y, side = threadIdx.x / SIDE;
    load(shared.staying[0], head_of(k, kv_head, n_k), first_key, n_k);
    load(shared.staying[1], head_of(v, kv_head, n_k), first_key, n_k);

    float gradient[8][8] = {}; // side 0: dK, side 1: dV
    const int end = end_of_seeing(first_key, first_key + STAYING - 1, n_q, n_k);
    for (int head = kv_head * GROUP; head < (kv_head + 1) * GROUP; ++head) {
        const float *q_h = head_of(q, head, n_q), *d_output_h = head_of(d_output, head, n_q);
        const float *lse_h = lse + size_t(head) * n_q, *delta_h = delta + size_t(head) * n_q;
        for (int first = first_to_see(first_key, n_q, n_k); first < end; first += PASSING) {
            load(shared.passing[0], q_h, first, n_q);
            load(shared.passing[1], d_output_h, first, n_q);
            load_numbers<PASSING>(shared, lse_h, delta_h, first, n_q);
            recompute<true>(shared, head, first, first_key, n_q, n_k, scale);
            // side 0: scores = scale · q kᵀ: dK += scale · dSᵀ Q, where the scale comes in the end
            // side 1: output = weights · v: dV += Aᵀ dO
            const Tile& tile = side == 0 ? shared.d_scores : shared.weights;
            accumulate<2>(gradient, tile, shared.passing[side], 0);
            __syncthreads(); // no thread reads the rows any more
        }
    }
    store<2>(gradient, head_of(side == 0 ? d_k : d_v, kv_head, n_k), first_key, n_k, 0,
             side == 0 ? scale : 1);
}
// ANCHOR_END: keys

// dQ, (n_q, D). A block keeps a tile of queries and the gradients of their outputs; the keys and
// values come by. Each side sums half of the columns.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
backward_queries(const float* q, const float* k, const float* v, const float* d_output,
                 const float* lse, const float* delta, float* d_q, int n_q, int n_k, float scale) {
    Shared& shared = shared_memory<Shared>();
    // The last blocks see the most keys, if the attention is causal, and so begin first.
    const int first_query = (gridDim.x - 1 - blockIdx.x) * STAYING, head = blockIdx.y;
    const int side = threadIdx.x / SIDE;
    k = head_of(k, head / GROUP, n_k), v = head_of(v, head / GROUP, n_k);
    lse += size_t(head) * n_q, delta += size_t(head) * n_q;
    load(shared.staying[0], head_of(q, head, n_q), first_query, n_q);
    load(shared.staying[1], head_of(d_output, head, n_q), first_query, n_q);
    load_numbers<STAYING>(shared, lse, delta, first_query, n_q);

    float gradient[8][4] = {};
    const int seen_by_block = keys_seen_by(first_query + STAYING - 1, n_q, n_k);
    for (int first = next_tile(0, PASSING, first_query, n_q, n_k); first < seen_by_block;
         first = next_tile(first + PASSING, PASSING, first_query, n_q, n_k)) {
        load(shared.passing[0], k, first, n_k);
        load(shared.passing[1], v, first, n_k);
        recompute<false>(shared, head, first_query, first, n_q, n_k, scale);
        // scores = scale · q kᵀ: dQ += scale · dS K, where the scale comes in the end
        accumulate<1>(gradient, shared.d_scores, shared.passing[0], side);
        __syncthreads(); // no thread reads the rows any more
    }
    store<1>(gradient, head_of(d_q, head, n_q), first_query, n_q, side, scale);
}
