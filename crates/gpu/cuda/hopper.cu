// Kernel 4: the same attention in the hands of specialists (FlashAttention-3, Shah et al., 2024).
//
// Kernel 3 lets every warp do everything: ask for tiles, wait for them, feed the tensor cores
// through its registers, compute the softmax. Here the work is divided. One warpgroup, the
// producer, asks the copy engine for tiles and does nothing else: a single thread carries a whole
// tile, and no register of anybody. The others, the consumers, own 64 rows of queries each. Their
// products are wgmma: a warpgroup's worth at a time, read from shared memory by the tensor cores
// themselves, while the threads go on. So the next tile's scores are computed while this tile's
// softmax is.
//
// `scale` must be positive: the largest score is sought before it is scaled.

#include "hopper_tiles.cuh"

constexpr int CONSUMERS = D == 128 ? 2 : 3; // warpgroups, beside the producer
constexpr int QUERIES = 64 * CONSUMERS;     // rows of a block
constexpr int KEYS = 128;                   // rows of a tile of keys, or of values
constexpr int STAGES = 2;                   // tiles of each that shared memory holds
constexpr int THREADS = 128 * (1 + CONSUMERS);

// A multiprocessor has 64K registers: 512 for 128 threads. The launch deals them out evenly to the
// warpgroups; then the producer, which needs next to none, leaves its own to the consumers:
// 24 + 2 · 240 = 504 (3 · 168 at the launch), 32 + 3 · 160 = 512 (4 · 128).
constexpr int PRODUCER_REGISTERS = D == 128 ? 24 : 32;
constexpr int CONSUMER_REGISTERS = D == 128 ? 240 : 160;

struct Shared {
    Tile<QUERIES> q;
    Tile<KEYS> k[STAGES], v[STAGES];
    Barrier q_full, k_full[STAGES], v_full[STAGES], k_empty[STAGES], v_empty[STAGES];
};
extern "C" __constant__ int attention_forward_launch[3] = {THREADS, QUERIES, int(sizeof(Shared))};
extern "C" __constant__ int attention_forward_boxes[2] = {QUERIES, KEYS};

// What a block does: these queries of this head, against so many tiles of keys, from the last to
// the first. The last is the one that may need a mask, and its number is known from the start.
struct Work {
    int head, first_query, tiles;

    __device__ int first_key(int t) const { return (tiles - 1 - t) * KEYS; }
};

// ANCHOR: producer
// The keys run one tile ahead of the values, because the scores do.
__device__ void produce(Shared& shared, const TensorMap& q, const TensorMap& k, const TensorMap& v,
                        const Work& work) {
    load<QUERIES>(shared.q, q, shared.q_full, work.first_query, work.head);
    for (int t = 0; t <= work.tiles; ++t) {
        if (t < work.tiles) {
            const int i = t % STAGES;
            wait_empty(shared.k_empty, t);
            load<KEYS>(shared.k[i], k, shared.k_full[i], work.first_key(t), work.head);
        }
        if (t > 0) {
            const int i = (t - 1) % STAGES;
            wait_empty(shared.v_empty, t - 1);
            load<KEYS>(shared.v[i], v, shared.v_full[i], work.first_key(t - 1), work.head);
        }
    }
}
// ANCHOR_END: producer

// What the online softmax carries from tile to tile, for the thread's two rows.
struct Rows {
    float m[2] = {MINUS_INFINITY, MINUS_INFINITY}; // the largest score so far, not scaled
    float sum[2] = {0, 0};                         // of the thread's own weights so far
    float correction[2];                           // of sums that are relative to the last m
};

// The scores of a tile become weights, in place. `seen` says how many keys of the tile each row
// sees; it is looked at only if the tile is `masked`. `scale` is in powers of two.
template <bool masked>
__device__ void softmax(float (&s)[KEYS / 2], Rows& rows, const int (&seen)[2], float scale) {
#pragma unroll
    for (int half = 0; half < 2; ++half) { // rows g and g + 8
        float m = rows.m[half];
#pragma unroll
        for (int i = 2 * half; i < KEYS / 2; i += 4)
#pragma unroll
            for (int e = 0; e < 2; ++e) { // columns 2t and 2t + 1 of every eight
                const int j = 2 * i - 4 * half + int(threadIdx.x % 4) * 2 + e;
                if (masked && j >= seen[half]) s[i + e] = MINUS_INFINITY;
                m = fmaxf(m, s[i + e]);
            }
        m = max_of_lanes<4>(m);
        const float shift = masked && m == MINUS_INFINITY ? 0 : scale * m; // no key seen yet
        rows.correction[half] = exp2f(scale * rows.m[half] - shift);
        rows.m[half] = m;
        float sum = 0;
#pragma unroll
        for (int i = 2 * half; i < KEYS / 2; i += 4)
#pragma unroll
            for (int e = 0; e < 2; ++e) sum += s[i + e] = exp2f(scale * s[i + e] - shift);
        rows.sum[half] = rows.correction[half] * rows.sum[half] + sum;
    }
}

// What was summed into O follows the new maximum.
__device__ void correct(float (&o)[D / 2], const Rows& rows) {
#pragma unroll
    for (int i = 0; i < D / 2; ++i) o[i] *= rows.correction[i / 2 % 2];
}

// ANCHOR: turns
// The consumers begin their products in turns, so that while one has the tensor cores the others
// compute their softmax. Barrier 1 + c is consumer c's turn: the one before it arrives, it waits.
__device__ void wait_for_turn(int consumer) { named_barrier_sync(1 + consumer, 256); }
__device__ void pass_turn(int consumer) {
    named_barrier_arrive(1 + (consumer + 1) % CONSUMERS, 256);
}
// ANCHOR_END: turns

// The state of a consumer's thread, all of it in registers.
struct Consumer {
    Shared& shared;
    const Work& work;
    const int number;  // of the consumer
    const float scale; // in powers of two
    const int seen[2]; // keys that the thread's two rows see
    Rows rows = {};
    float s[KEYS / 2];
    float o[D / 2] = {};
    unsigned weights[KEYS / 16][4];

    template <bool masked> __device__ void to_weights(int t) {
        const int first = work.first_key(t), seen_of_tile[2] = {seen[0] - first, seen[1] - first};
        softmax<masked>(s, rows, seen_of_tile, scale);
    }

    // The scores and weights of the first tile, with nothing to do beside.
    __device__ void first() {
        mbarrier_wait(shared.q_full, 0);
        expect_keys(0);
        begin_product(s, shared.q, 64 * number, shared.k[0]);
        wgmma_wait<0>();
        pin(s);
        release(shared.k_empty, 0);
        to_weights<true>(0);
        to_bf16(weights, s);
        expect_keys(1);
    }

    // The keys of tile t, if there is one, are there.
    __device__ void expect_keys(int t) {
        if (t < work.tiles) wait_full(shared.k_full, t);
    }

    // ANCHOR: step
    // The scores of tile t and the output of tile t - 1 are begun together. The softmax needs the
    // scores alone, and runs while the tensor cores are at the output.
    template <bool masked> __device__ void step(int t) {
        wait_for_turn(number);
        begin_product(s, shared.q, 64 * number, shared.k[t % STAGES]);
        wait_full(shared.v_full, t - 1);
        begin_sum(o, weights, shared.v[(t - 1) % STAGES]);
        pass_turn(number);

        wgmma_wait<1>(); // the scores are there
        pin(s);
        release(shared.k_empty, t);
        to_weights<masked>(t);
        pin(s);
        expect_keys(t + 1); // also a branch: without one, ptxas moves the wait before the softmax

        wgmma_wait<0>(); // the output is there
        pin(o);
        pin(weights);
        release(shared.v_empty, t - 1);
        to_bf16(weights, s);
        correct(o, rows);
    }
    // ANCHOR_END: step

    // The output of the last tile.
    __device__ void last() {
        wait_full(shared.v_full, work.tiles - 1);
        begin_sum(o, weights, shared.v[(work.tiles - 1) % STAGES]);
        wgmma_wait<0>();
        pin(o);
    }

    // All tiles. Of those, all rows see the first `whole` of the matrix to the end.
    __device__ void run(int whole) {
        if (number == CONSUMERS - 1) pass_turn(number); // consumer 0 begins
        first();
        int t = 1;
        if (CAUSAL)
            for (; t < work.tiles - whole; ++t) step<true>(t);
        for (; t < work.tiles; ++t) step<false>(t);
        last();
        if (number == 0) wait_for_turn(number); // the last turn belongs to none
    }
};

// A warp's 16 rows, divided by their sums, through the place of their queries.
__device__ void store(Consumer& consumer, Bf16* output, float* lse, int n_q) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    const int first_row = 64 * consumer.number + 16 * warp; // of the warp, in the block's tile
    const int first_query = consumer.work.first_query + first_row;
    lse += size_t(consumer.work.head) * n_q;
    float inverse[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int i = first_query + 8 * half + lane / 4;
        const float sum = sum_of_lanes<4>(consumer.rows.sum[half]);
        inverse[half] = sum > 0 ? 1 / sum : 0;
        if (lane % 4 == 0 && i < n_q)
            lse[i] = LN_2 * (consumer.scale * consumer.rows.m[half] + log2f(sum));
    }
    // The last product of a warpgroup reads the queries of all of its warps.
    named_barrier_sync(1 + CONSUMERS + consumer.number, 128);
    store_rows(consumer.o, inverse, consumer.shared.q, first_row,
               head_of(output, consumer.work.head, n_q), first_query, n_q);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
attention_forward(const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap k,
                  const __grid_constant__ TensorMap v, Bf16* output, float* lse, int n_q, int n_k,
                  float scale) {
    Shared& shared = shared_memory<Shared>();
    // The last blocks see the most keys, if the attention is causal, and so begin first.
    const int first_query = (gridDim.x - 1 - blockIdx.x) * QUERIES;
    const int seen_by_block = keys_seen_by(first_query + QUERIES - 1, n_q, n_k);
    const Work work = {int(blockIdx.y), first_query, (seen_by_block + KEYS - 1) / KEYS};

    if (threadIdx.x == 0) {
        mbarrier_init(shared.q_full, 1);
        for (int i = 0; i < STAGES; ++i) {
            mbarrier_init(shared.k_full[i], 1);
            mbarrier_init(shared.v_full[i], 1);
            mbarrier_init(shared.k_empty[i], 4 * CONSUMERS); // a warp each
            mbarrier_init(shared.v_empty[i], 4 * CONSUMERS);
        }
        mbarrier_init_fence();
    }
    __syncthreads();

    // The same in all lanes, which the compiler learns from the shuffle.
    const int warpgroup = __shfl_sync(~0u, int(threadIdx.x) / 128, 0);
    if (warpgroup == 0) {
        keep_registers<PRODUCER_REGISTERS>();
        if (threadIdx.x / 32 == 0 && work.tiles > 0 && elect()) produce(shared, q, k, v, work);
    } else {
        take_registers<CONSUMER_REGISTERS>();
        const int number = warpgroup - 1, first_row = first_query + 64 * number;
        const int i = first_row + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
        Consumer consumer = {shared, work, number, LOG2_E * scale,
                             {keys_seen_by(i, n_q, n_k), keys_seen_by(i + 8, n_q, n_k)}};
        if (work.tiles > 0) consumer.run(keys_seen_by(first_row, n_q, n_k) / KEYS);
        store(consumer, output, lse, n_q);
    }
}
