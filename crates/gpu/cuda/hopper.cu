// Kernel 4: the same attention in the hands of specialists (FlashAttention-3, Shah et al., 2024).
//
// Kernel 3 lets every warp do everything: ask for tiles, wait for them, feed the tensor cores
// through its registers, compute the softmax. Here the work is divided. One warpgroup, the
// producer, asks the copy engine for tiles and does nothing else: a single thread carries a whole
// tile, and no register of anybody. The others, the consumers, own 64 rows of queries each. Their
// products are wgmma: a warpgroup's worth at a time, read from shared memory by the tensor cores
// themselves, while the threads go on. So the next tile's scores are computed while this tile's
// softmax is.

#include "hopper_tiles.cuh"

// Does a block take one tile of queries after another, for as long as there are any? Then the next
// queries come while the last output is written: there is a place for each.
#ifdef PERSISTENT
constexpr bool IS_PERSISTENT = true;
#else
constexpr bool IS_PERSISTENT = false;
#endif
constexpr int QUERY_STAGES = IS_PERSISTENT ? 2 : 1;

// Warpgroups, beside the producer. With a third one, too few registers are left for a rule, and of
// short sequences the last tile is mostly empty.
constexpr int CONSUMERS = D == 128 || HAS_RULE || IS_PERSISTENT ? 2 : 3;
constexpr int QUERIES = 64 * CONSUMERS;     // rows of a block
constexpr int KEYS = 128;                   // rows of a tile of keys, or of values
constexpr int STAGES = 2;                   // tiles of each that shared memory holds
constexpr int THREADS = 128 * (1 + CONSUMERS);

// A multiprocessor has 64K registers: 512 for 128 threads. The launch deals them out evenly to the
// warpgroups; then the producer, which needs next to none, leaves its own to the consumers:
// 24 + 2 · 240 = 504 (3 · 168 at the launch), 32 + 3 · 160 = 512 (4 · 128).
constexpr int PRODUCER_REGISTERS = CONSUMERS == 2 ? 24 : 32;
constexpr int CONSUMER_REGISTERS = CONSUMERS == 2 ? 240 : 160;

struct Shared {
    Tile<QUERIES> q[QUERY_STAGES];
    Tile<KEYS> k[STAGES], v[STAGES];
    Barrier q_full[QUERY_STAGES], k_full[STAGES], v_full[STAGES];
    Barrier q_empty[QUERY_STAGES], k_empty[STAGES], v_empty[STAGES];
};
extern "C" __constant__ int attention_forward_launch[3] = {THREADS, QUERIES, int(sizeof(Shared))};

// Rows that the copy engine brings at once.
constexpr int BOX_OF_QUERIES = 64, BOX_OF_KEYS = KEYS;
extern "C" __constant__ int attention_forward_boxes[2] = {BOX_OF_QUERIES, BOX_OF_KEYS};

// A piece of work: these queries of this head, against tiles of keys from the last one to the first.
// The last is the one that may need a causal mask, and its number is known from the start. Tiles of
// keys are numbered through all pieces of a block, as the ring counts them: these are `begin` to
// `end` - 1.
struct Work {
    int n_q, n_k;
    int number; // of the piece
    int head, first_query;
    int skipped; // tiles of keys that a mask hides, behind those of its sinks
    int begin, end;

    static constexpr int OF_SINKS = (SINKS + KEYS - 1) / KEYS; // tiles

    // The piece after one that ended at `begin`.
    __device__ Work(int n_q, int n_k, int number, int head, int tile, int begin)
        : n_q(n_q), n_k(n_k), number(number), head(head), first_query(tile * QUERIES),
          begin(begin) {
        const int last_query = min(first_query + QUERIES, n_q) - 1;
        const int of_head = (keys_seen_by(last_query, n_q, n_k) + KEYS - 1) / KEYS;
        skipped = max(0, first_key_of(first_query, n_q, n_k) / KEYS - OF_SINKS);
        end = begin + max(0, of_head - skipped);
    }

    __device__ int first_key(int t) const {
        const int tile = end - 1 - t;
        return (tile + (tile < OF_SINKS ? 0 : skipped)) * KEYS;
    }
    __device__ int stage() const { return number % QUERY_STAGES; } // of the queries
};

// ANCHOR: schedule
// Does all work of the block, one piece after another. If the attention is causal, the last
// queries see the most keys. A block with one tile of queries begins early if it has much to do. A
// persistent one takes the last tile of a head with the first, the last but one with the second:
// pairs that have the same work. Blocks that run together have neighbouring pairs, which share
// keys.
template <typename Do>
__device__ void for_each_work(int n_q, int n_k, int heads, const Do& do_work) {
    if (!IS_PERSISTENT) {
        do_work(Work(n_q, n_k, 0, blockIdx.y, gridDim.x - 1 - blockIdx.x, 0));
        return;
    }
    const int tiles = (n_q + QUERIES - 1) / QUERIES, pairs = (tiles + 1) / 2;
    int number = 0, done = 0;
    for (int pair = blockIdx.x; pair < pairs * heads; pair += gridDim.x) {
        const int first = pair % pairs, last = tiles - 1 - first;
        for (int tile = last; tile >= first; tile -= max(1, last - first)) {
            const Work work(n_q, n_k, number++, pair / pairs, tile, done);
            do_work(work);
            done = work.end;
        }
    }
}
// ANCHOR_END: schedule

// ANCHOR: producer
// The keys run one tile ahead of the values, because the scores do.
__device__ void produce(Shared& shared, const TensorMap& q, const TensorMap& k, const TensorMap& v,
                        const Work& work) {
    const int kv_head = work.head / GROUP;
    wait_empty(shared.q_empty, work.number);
    load<BOX_OF_QUERIES>(shared.q[work.stage()], q, shared.q_full[work.stage()], work.first_query,
                         work.head);
    for (int t = work.begin; t <= work.end; ++t) {
        if (t < work.end) {
            const int i = t % STAGES;
            wait_empty(shared.k_empty, t);
            load<BOX_OF_KEYS>(shared.k[i], k, shared.k_full[i], work.first_key(t), kv_head);
        }
        if (t > work.begin) {
            const int i = (t - 1) % STAGES;
            wait_empty(shared.v_empty, t - 1);
            load<BOX_OF_KEYS>(shared.v[i], v, shared.v_full[i], work.first_key(t - 1), kv_head);
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

// Which keys of a tile each of the thread's two rows sees: those before `end` and, but for `sinks`
// at the beginning, from `begin` on.
struct Seen {
    int begin[2], end[2], sinks;

    __device__ bool has(int half, int j) const {
        return j < end[half] && (!HAS_MASK || j >= begin[half] || j < sinks);
    }
};

// The scores of a tile become weights, in place. What is seen is looked at only if the tile is
// `masked`. `scale` is in powers of two.
//
// The largest score is sought before all are scaled, since the scale is positive. A rule for scores
// may change their order: then they are scaled and changed first, and `scale` is 1.
template <bool masked>
__device__ void softmax(float (&s)[KEYS / 2], Rows& rows, const Seen& seen, float scale) {
#pragma unroll
    for (int half = 0; half < 2; ++half) { // rows g and g + 8
        float m = rows.m[half];
#pragma unroll
        for (int i = 2 * half; i < KEYS / 2; i += 4)
#pragma unroll
            for (int e = 0; e < 2; ++e) { // columns 2t and 2t + 1 of every eight
                const int j = 2 * i - 4 * half + int(threadIdx.x % 4) * 2 + e;
                if (masked && !seen.has(half, j)) s[i + e] = MINUS_INFINITY;
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
    const int number;        // of the consumer
    const float score_scale; // in powers of two
    const Seen seen;         // of all keys
    const int place;         // of the thread's first row among the keys
    const float scale = HAS_RULE ? 1 : score_scale; // of what the softmax gets
    Rows rows = {};
    float s[KEYS / 2];
    float o[D / 2] = {};
    unsigned weights[KEYS / 16][4];

    template <bool masked> __device__ void to_weights(int t) {
        const int first = work.first_key(t);
        if (HAS_RULE)
#pragma unroll
            for (int i = 0; i < KEYS / 2; ++i) { // as in `softmax`
                const int half = i / 2 % 2, j = i / 4 * 8 + int(threadIdx.x % 4) * 2 + i % 2;
                s[i] = changed_power(score_scale * s[i], work.head, place + 8 * half - first - j);
            }
        softmax<masked>(s, rows,
                        {{seen.begin[0] - first, seen.begin[1] - first},
                         {seen.end[0] - first, seen.end[1] - first},
                         seen.sinks - first},
                        scale);
    }

    __device__ Tile<QUERIES>& queries() const { return shared.q[work.stage()]; }

    // The scores and weights of the first tile, with nothing to do beside.
    __device__ void first() {
        const int t = work.begin;
        expect_keys(t);
        begin_product(s, queries(), 64 * number, shared.k[t % STAGES]);
        wgmma_wait<0>();
        pin(s);
        release(shared.k_empty, t);
        to_weights<true>(t);
        to_bf16(weights, s);
        expect_keys(t + 1);
    }

    // The keys of tile t, if there is one, are there.
    __device__ void expect_keys(int t) {
        if (t < work.end) wait_full(shared.k_full, t);
    }

    // ANCHOR: step
    // The scores of tile t and the output of tile t - 1 are begun together. The softmax needs the
    // scores alone, and runs while the tensor cores are at the output.
    template <bool masked> __device__ void step(int t) {
        wait_for_turn(number);
        begin_product(s, queries(), 64 * number, shared.k[t % STAGES]);
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
        const int t = work.end - 1;
        wait_full(shared.v_full, t);
        begin_sum(o, weights, shared.v[t % STAGES]);
        wgmma_wait<0>();
        pin(o);
        release(shared.v_empty, t);
    }

    // Does a row of the consumer not see all of tile t?
    __device__ bool is_masked(int t) const {
        const int first = work.first_key(t), row = work.first_query + 64 * number;
        return keys_seen_by(row, work.n_q, work.n_k) < first + KEYS
               || (first + KEYS > SINKS && first_key_of(row + 63, work.n_q, work.n_k) > first);
    }

    // All tiles. A mask may cut any of them; without one, all rows see the first ones whole.
    __device__ void run() {
        first();
        int t = work.begin + 1;
        if (HAS_MASK)
            for (; t < work.end; ++t)
                if (is_masked(t)) step<true>(t);
                else step<false>(t);
        if (CAUSAL)
            for (; t < work.end && is_masked(t); ++t) step<true>(t);
        for (; t < work.end; ++t) step<false>(t);
        last();
    }
};

// A warp's 16 rows, divided by their sums, through the place of their queries.
__device__ void store(Consumer& consumer, Bf16* output, float* lse) {
    const Work& work = consumer.work;
    const int n_q = work.n_q;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    const int first_row = 64 * consumer.number + 16 * warp; // of the warp, in the block's tile
    const int first_query = work.first_query + first_row;
    lse += size_t(work.head) * n_q;
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
    store_rows(consumer.o, inverse, consumer.queries(), first_row,
               head_of(output, work.head, n_q), first_query, n_q);
    // The next queries may come here: what the lanes wrote and read is done, for the copy engine too.
    if (IS_PERSISTENT) {
        async_proxy_fence();
        __syncwarp();
        release(consumer.shared.q_empty, work.number);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
attention_forward(const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap k,
                  const __grid_constant__ TensorMap v, Bf16* output, float* lse, int n_q, int n_k,
                  int heads, float scale) {
    Shared& shared = shared_memory<Shared>();
    if (threadIdx.x == 0) {
        init_ring(shared.q_full, shared.q_empty, 1, 4 * CONSUMERS); // a warp each
        init_ring(shared.k_full, shared.k_empty, 1, 4 * CONSUMERS);
        init_ring(shared.v_full, shared.v_empty, 1, 4 * CONSUMERS);
        mbarrier_init_fence();
    }
    __syncthreads();

    // The same in all lanes, which the compiler learns from the shuffle.
    const int warpgroup = __shfl_sync(~0u, int(threadIdx.x) / 128, 0);
    if (warpgroup == 0) {
        keep_registers<PRODUCER_REGISTERS>();
        if (threadIdx.x / 32 == 0 && elect())
            for_each_work(n_q, n_k, heads,
                          [&](const Work& work) { produce(shared, q, k, v, work); });
    } else {
        take_registers<CONSUMER_REGISTERS>();
        const int number = warpgroup - 1;
        if (number == CONSUMERS - 1) pass_turn(number); // consumer 0 begins
        for_each_work(n_q, n_k, heads, [&](const Work& work) {
            const int i = work.first_query + 64 * number + threadIdx.x / 32 % 4 * 16
                          + threadIdx.x % 32 / 4;
            const Seen seen = {{first_key_of(i, n_q, n_k), first_key_of(i + 8, n_q, n_k)},
                               {keys_seen_by(i, n_q, n_k), keys_seen_by(i + 8, n_q, n_k)},
                               SINKS};
            Consumer consumer = {shared, work, number, LOG2_E * scale, seen, i + n_k - n_q};
            wait_full(shared.q_full, work.number);
            if (work.begin < work.end) consumer.run();
            store(consumer, output, lse);
        });
        if (number == 0) wait_for_turn(number); // the last turn belongs to none
    }
}
