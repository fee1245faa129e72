// Kernel 6: the backward pass on tensor cores. The owners are those of kernel 5: in `backward_keys`
// a block keeps a tile of keys and values while the queries pass by, in `backward_queries` it is
// the other way round, so that each sum has one owner and a fixed order, at the price of seven
// products in place of five. The specialists are those of kernel 4: a producer asks for tiles, and
// two consumers, warpgroups that own 64 of the rows that stay, compute.
//
// Whatever stays, the rows of a product are those that stay, and its columns those that pass:
// scores are K Qᵀ where keys stay, Q Kᵀ where queries do. Their gradients are then summed by
// products whose left factor, the weights or the gradients of scores, is in registers already, just
// as it came out of the product before. No weight is ever written to shared memory.
//
// The products of a tile depend on each other: scores, weights, gradients of scores, sums. So a
// consumer begins the sum of the tile before together with the scores of the next, and computes
// weights while the tensor cores are at the gradients of the weights. Still it sometimes has no
// product under way; then the tensor cores have those of the other consumer.

#include "hopper_tiles.cuh"

constexpr int CONSUMERS = 2;            // warpgroups, beside the producer
constexpr int STAYING = 64 * CONSUMERS; // rows of a block: keys, or queries
constexpr int BOX = 64;                 // rows that the copy engine brings at once
constexpr int THREADS = 128 * (1 + CONSUMERS);

// Rows of a tile that passes. Where keys stay, a thread has two sums in its registers. Then for wide
// heads, or with a rule or a mask to compute, there is room for the scores of 64 queries only. That
// has a price: to multiply 64 rows by 64, the tensor cores read shared memory for as long as they
// multiply.
#if defined(SCORE_RULE) || defined(MASK)
constexpr int QUERIES = 64;
#else
constexpr int QUERIES = D == 128 ? 64 : 128;
#endif
constexpr int KEYS = 128;

// As in kernel 4: 24 + 2 · 240 = 504 registers, 3 · 168 at the launch.
constexpr int PRODUCER_REGISTERS = 24, CONSUMER_REGISTERS = 240;

// The two numbers of a query, for a tile of them: the log-sum-exp of its scores, in powers of two,
// and delta = rowsum(dO ⊙ O). A query that is not there, or sees no key, has an lse of +∞: then all
// of its weights, exp2(score − ∞), are 0.
struct Numbers {
    float lse[QUERIES], delta[QUERIES];
};

// What stays, and two rings of what passes. Number 0 is that of the scores: keys and queries.
// Number 1 is that of the gradients of the weights: values and dO. A tile of number 0 is needed
// longer, for the first sum of the next step; of tiles of 128 wide keys, three have room.
template <bool keys_stay> struct Shared {
    static constexpr int PASSING = keys_stay ? QUERIES : KEYS;
    static constexpr bool FEW = !keys_stay && D == 128;
    static constexpr int STAGES_0 = FEW ? 3 : 4, STAGES_1 = FEW ? 2 : 4;

    Tile<STAYING> staying[2];
    Tile<PASSING> passing_0[STAGES_0], passing_1[STAGES_1];
    Numbers numbers[keys_stay ? STAGES_0 : 1]; // of the queries that pass
    Barrier staying_full, full_0[STAGES_0], full_1[STAGES_1], empty_0[STAGES_0], empty_1[STAGES_1];
};

extern "C" __constant__ int backward_delta_launch[3] = {128, QUERIES, 0};
extern "C" __constant__ int backward_keys_launch[3] = {THREADS, STAYING, int(sizeof(Shared<true>))};
extern "C" __constant__ int backward_queries_launch[3] = {THREADS, STAYING,
                                                          int(sizeof(Shared<false>))};

// How many tiles of numbers a head has room for: those of a multiple of 128 queries.
__device__ inline int tiles_of_numbers(int n_q) { return (n_q + 127) / 128 * (128 / QUERIES); }

// A pair of bf16 times another, summed.
__device__ inline float dot(unsigned x, unsigned y) {
    return low_of(x) * low_of(y) + high_of(x) * high_of(y);
}

// A block prepares the numbers of a tile of queries, each of four warps those of a quarter.
extern "C" __global__ void __launch_bounds__(128)
backward_delta(const Bf16* output, const Bf16* d_output, const float* lse, float* numbers,
               int n_q) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, head = blockIdx.y;
    const auto* o = reinterpret_cast<const unsigned*>(head_of(output, head, n_q));
    const auto* d_o = reinterpret_cast<const unsigned*>(head_of(d_output, head, n_q));
    const size_t tile = size_t(head) * tiles_of_numbers(n_q) + blockIdx.x;
    Numbers& to = reinterpret_cast<Numbers*>(numbers)[tile];
#pragma unroll 4
    for (int row = QUERIES / 4 * warp; row < QUERIES / 4 * (warp + 1); ++row) {
        const int i = blockIdx.x * QUERIES + row;
        const float own_lse = i < n_q ? lse[size_t(head) * n_q + i] : MINUS_INFINITY;
        float sum = 0;
        if (own_lse != MINUS_INFINITY)
            for (int pair = lane; pair < D / 2; pair += 32)
                sum += dot(o[size_t(i) * (D / 2) + pair], d_o[size_t(i) * (D / 2) + pair]);
        sum = sum_of_lanes<32>(sum);
        if (lane == 0) {
            to.lse[row] = own_lse != MINUS_INFINITY ? LOG2_E * own_lse : -MINUS_INFINITY;
            to.delta[row] = sum;
        }
    }
}

// ---- what a block does ------------------------------------------------------------------------

// The rows that stay belong to one head. The tiles that pass are those which they see, or which see
// them: of one head or, where keys stay, of each head of their group.
template <bool keys_stay> struct Work {
    int n_q, n_k;
    int head, first_staying;
    int first_tile, tiles_of_head, tiles;
    int skipped; // tiles that a mask hides, behind those of its sinks

    static constexpr int PASSING = Shared<keys_stay>::PASSING;
    static constexpr bool of_many_heads = keys_stay && GROUP > 1;
    static constexpr int OF_SINKS = (SINKS + PASSING - 1) / PASSING; // tiles

    __device__ Work(int n_q, int n_k) : n_q(n_q), n_k(n_k), head(blockIdx.y) {
        // Where queries stay and the attention is causal, the last blocks have the most to do; they
        // begin first. Where keys stay, the first ones have.
        first_staying = (keys_stay ? blockIdx.x : gridDim.x - 1 - blockIdx.x) * STAYING;
        const int last = min(first_staying + STAYING, n_q) - 1;
        first_tile = keys_stay ? first_to_see(first_staying, n_q, n_k) / PASSING : 0;
        const int last_key = first_staying + STAYING - 1;
        const int end = keys_stay ? end_of_seeing(first_staying, last_key, n_q, n_k)
                                  : keys_seen_by(last, n_q, n_k);
        const int first_seen = first_key_of(first_staying, n_q, n_k) / PASSING;
        skipped = keys_stay ? 0 : max(0, first_seen - OF_SINKS);
        tiles_of_head = max(0, (end + PASSING - 1) / PASSING - first_tile - skipped);
        tiles = of_many_heads ? GROUP * tiles_of_head : tiles_of_head;
    }

    // Of tile t of those that pass.
    __device__ int passing_head(int t) const {
        if (!keys_stay) return head / GROUP;
        return head * GROUP + (of_many_heads ? t / tiles_of_head : 0);
    }
    __device__ int first_passing(int t) const {
        const int tile = first_tile + (of_many_heads ? t % tiles_of_head : t);
        return (tile + (tile < OF_SINKS ? 0 : skipped)) * PASSING;
    }
};

// The four matrices, as the copy engine knows them: two stay, two pass.
struct Maps {
    const TensorMap &staying_0, &staying_1, &passing_0, &passing_1;
};

template <bool keys_stay>
__device__ void produce(Shared<keys_stay>& shared, const Maps& maps, const float* numbers,
                        const Work<keys_stay>& work) {
    const int first_staying = work.first_staying;
    load<BOX>(shared.staying[0], maps.staying_0, shared.staying_full, first_staying, work.head);
    load<BOX>(shared.staying[1], maps.staying_1, shared.staying_full, first_staying, work.head);
    for (int t = 0; t < work.tiles; ++t) {
        const int head = work.passing_head(t), first = work.first_passing(t);
        const int i = t % shared.STAGES_0, j = t % shared.STAGES_1;
        wait_empty(shared.empty_0, t);
        load<BOX>(shared.passing_0[i], maps.passing_0, shared.full_0[i], first, head);
        if (keys_stay) {
            const auto* from = reinterpret_cast<const Numbers*>(numbers)
                               + size_t(head) * tiles_of_numbers(work.n_q) + first / QUERIES;
            mbarrier_arrive_expecting(shared.full_0[i], sizeof(Numbers));
            bulk_load(&shared.numbers[i], from, sizeof(Numbers), shared.full_0[i]);
        }
        wait_empty(shared.empty_1, t);
        load<BOX>(shared.passing_1[j], maps.passing_1, shared.full_1[j], first, head);
    }
}

// The state of a consumer's thread, all of it in registers. Of a product it has two rows, g and
// g + 8 of its warp's 16, and the columns 2t and 2t + 1 of every eight.
template <bool keys_stay> struct Consumer {
    static constexpr int PASSING = Shared<keys_stay>::PASSING;

    Shared<keys_stay>& shared;
    const Work<keys_stay>& work;
    const int number;  // of the consumer
    const float scale; // of the scores, in powers of two
    float lse[2], delta[2]; // of the two rows, if they are queries
    float s[PASSING / 2];   // scores, then weights
    float d_weights[PASSING / 2];
    unsigned weights[PASSING / 16][4], d_scores[PASSING / 16][4]; // in bf16
    float sums[2][D / 2] = {}; // of dK or dQ; and of dV, if keys stay

    // The first row of the consumer, and that of the thread.
    __device__ int first_row() const { return work.first_staying + 64 * number; }
    __device__ int row() const {
        return first_row() + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
    }

    // The first column of the thread.
    __device__ int first_column() const { return threadIdx.x % 4 * 2; }

    // The numbers of the queries of tile t, from the thread's first column on.
    __device__ const float* lse_of(int t) const {
        return &shared.numbers[t % shared.STAGES_0].lse[first_column()];
    }
    __device__ const float* delta_of(int t) const {
        return &shared.numbers[t % shared.STAGES_0].delta[first_column()];
    }

    // The numbers of the two rows.
    __device__ void load_numbers(const float* numbers) {
        const auto* of_head = reinterpret_cast<const Numbers*>(numbers)
                              + size_t(work.head) * tiles_of_numbers(work.n_q);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int i = row() + 8 * half;
            const Numbers& of_tile = of_head[i / QUERIES];
            lse[half] = i < work.n_q ? of_tile.lse[i % QUERIES] : -MINUS_INFINITY;
            delta[half] = i < work.n_q ? of_tile.delta[i % QUERIES] : 0;
        }
    }

    // Does a row of the consumer not see, or is it not seen from, all of tile t?
    __device__ bool is_cut(int t) const {
        const int first = work.first_passing(t);
        const int last_query = min((keys_stay ? first + PASSING : first_row() + 64), work.n_q) - 1;
        if (HAS_MASK && (keys_stay ? first_row() + 64 : first + PASSING) > SINKS
            && first_key_of(last_query, work.n_q, work.n_k) > (keys_stay ? first_row() : first))
            return true;
        if (keys_stay)
            return CAUSAL
                   && keys_seen_by(first, work.n_q, work.n_k) < min(first_row() + 64, work.n_k);
        return keys_seen_by(first_row(), work.n_q, work.n_k) < first + PASSING;
    }

    // Scores become weights. Those in bf16 are the left factor of dV; of the others `s` keeps the
    // product with the rule's slope, which the gradients of the scores need. Of what is hidden,
    // the weight is 0. Keys past the end are hidden where they pass, and where queries that exist
    // look at them; where keys stay, their rows may become infinite, and are not stored.
    template <bool cut> __device__ void to_weights(int t) {
        const int first = work.first_passing(t) + first_column(), shift = work.n_k - work.n_q;
        const int head = keys_stay ? work.passing_head(t) : work.head;
        const int apart = row() - first; // of the first row and the first column
#pragma unroll
        for (int i = 0; i < PASSING / 2; i += 2) {
            const int half = i / 2 % 2, column = i / 4 * 8; // after the thread's first one
            float pair[2];
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                const int from_there = 8 * half - column - e;
                const int distance = shift + (keys_stay ? -1 : 1) * (apart + from_there);
                const float score = scale * s[i + e];
                const float slope = slope_of_change(LN_2 * score, head, distance);
                const float own_lse = keys_stay ? lse_of(t)[column + e] : lse[half];
                const float weight = exp2f(changed_power(score, head, distance) - own_lse);
                const int own = row() + 8 * half, other = first + column + e;
                // With a causal mask, keys past the end are also at a negative distance.
                const bool hidden =
                    cut
                    && (HAS_MASK ? !sees(keys_stay ? other : own, keys_stay ? own : other, work.n_q,
                                         work.n_k)
                        : CAUSAL ? distance < 0 : !keys_stay && other >= work.n_k);
                pair[e] = hidden ? 0 : weight;
                s[i + e] = hidden ? 0 : slope * weight;
            }
            if (keys_stay) weights[i / 8][i / 2 % 4] = pack_bf16(pair[0], pair[1]);
        }
    }

    // dS = A ⊙ (dA − delta), in bf16.
    __device__ void to_d_scores(int t) {
#pragma unroll
        for (int i = 0; i < PASSING / 2; i += 2) {
            const int half = i / 2 % 2, column = i / 4 * 8;
#pragma unroll
            for (int e = 0; e < 2; ++e)
                s[i + e] *= d_weights[i + e] - (keys_stay ? delta_of(t)[column + e] : delta[half]);
            d_scores[i / 8][i / 2 % 4] = pack_bf16(s[i], s[i + 1]);
        }
    }

    __device__ void begin_scores(int t) {
        wait_full(shared.full_0, t);
        begin_product(s, shared.staying[0], 64 * number, shared.passing_0[t % shared.STAGES_0]);
    }

    // dK += dSᵀ Q or dQ += dS K; the scale comes in the end.
    __device__ void begin_first_sum(int t) {
        begin_sum(sums[0], d_scores, shared.passing_0[t % shared.STAGES_0]);
    }

    // ANCHOR: step
    // From the scores of tile t to their gradients.
    template <bool cut> __device__ void finish_entries(int t) {
        const auto& values_or_d_o = shared.passing_1[t % shared.STAGES_1];
        wait_full(shared.full_1, t);
        begin_product(d_weights, shared.staying[1], 64 * number, values_or_d_o);
        to_weights<cut>(t); // beside that product
        if (keys_stay) begin_sum(sums[1], weights, values_or_d_o); // dV += Aᵀ dO
        wgmma_wait<keys_stay ? 1 : 0>(); // d_weights are there
        pin(d_weights);
        to_d_scores(t); // beside the sum, if there is one
        wgmma_wait<0>();
        if (keys_stay) pin(sums[1]), pin(weights);
        release(shared.empty_1, t);
    }

    // The sum of the tile before is begun together with the scores of this one.
    template <bool cut> __device__ void step(int t) {
        begin_first_sum(t - 1);
        begin_scores(t);
        wgmma_wait<0>();
        pin(sums[0]), pin(d_scores), pin(s);
        release(shared.empty_0, t - 1);
        finish_entries<cut>(t);
    }
    // ANCHOR_END: step

    // The first tile. It is one that may be cut: by the diagonal, by a mask, or because it is also
    // the last.
    __device__ void first() {
        begin_scores(0);
        wgmma_wait<0>();
        pin(s);
        finish_entries<true>(0);
    }

    __device__ void last() {
        begin_first_sum(work.tiles - 1);
        wgmma_wait<0>();
        pin(sums[0]);
    }

    __device__ void run() {
        mbarrier_wait(shared.staying_full, 0);
        first();
        for (int t = 1; t < work.tiles; ++t)
            if (is_cut(t)) step<true>(t);
            else step<false>(t);
        last();
    }

    // Writes the consumer's rows of sum `which` over the rows that stayed, and from there to
    // memory.
    __device__ void store(int which, float factor, Bf16* gradient) {
        const int warp = threadIdx.x / 32 % 4, n = keys_stay ? work.n_k : work.n_q;
        store_rows(sums[which], {factor, factor}, shared.staying[which], 64 * number + 16 * warp,
                   head_of(gradient, work.head, n), first_row() + 16 * warp, n);
    }
};

template <bool keys_stay>
__device__ void run(const Maps& maps, const float* numbers, Bf16* gradient_0, Bf16* gradient_1,
                    int n_q, int n_k, float scale) {
    auto& shared = shared_memory<Shared<keys_stay>>();
    const Work<keys_stay> work(n_q, n_k);

    if (threadIdx.x == 0) {
        mbarrier_init(shared.staying_full, 2); // tiles
        // Where keys stay, numbers come with each tile of queries.
        init_ring(shared.full_0, shared.empty_0, keys_stay ? 2 : 1, 4 * CONSUMERS);
        init_ring(shared.full_1, shared.empty_1, 1, 4 * CONSUMERS);
        mbarrier_init_fence();
    }
    __syncthreads();

    // The same in all lanes, which the compiler learns from the shuffle.
    const int warpgroup = __shfl_sync(~0u, int(threadIdx.x) / 128, 0);
    if (warpgroup == 0) {
        keep_registers<PRODUCER_REGISTERS>();
        if (threadIdx.x / 32 == 0 && work.tiles > 0 && elect())
            produce(shared, maps, numbers, work);
    } else {
        take_registers<CONSUMER_REGISTERS>();
        Consumer<keys_stay> consumer = {shared, work, warpgroup - 1, LOG2_E * scale};
        if (!keys_stay) consumer.load_numbers(numbers);
        if (work.tiles > 0) consumer.run();
        // The last products of a warpgroup read the rows of all of its warps.
        named_barrier_sync(warpgroup, 128);
        consumer.store(0, scale, gradient_0);
        if (keys_stay) consumer.store(1, 1, gradient_1);
    }
}

// dK and dV, (n_k, D).
extern "C" __global__ void __launch_bounds__(THREADS, 1)
backward_keys(const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap k,
              const __grid_constant__ TensorMap v, const __grid_constant__ TensorMap d_output,
              const float* numbers, Bf16* d_k, Bf16* d_v, int n_q, int n_k, float scale) {
    run<true>({k, v, q, d_output}, numbers, d_k, d_v, n_q, n_k, scale);
}

// dQ, (n_q, D).
extern "C" __global__ void __launch_bounds__(THREADS, 1)
backward_queries(const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap k,
                 const __grid_constant__ TensorMap v, const __grid_constant__ TensorMap d_output,
                 const float* numbers, Bf16* d_q, int n_q, int n_k, float scale) {
    run<false>({q, d_output, k, v}, numbers, d_q, nullptr, n_q, n_k, scale);
}
