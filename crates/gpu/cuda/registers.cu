// Kernel 2: flash attention out of registers. Kernel 1 waits for shared memory: a multiplication of
// Q Kᵀ reads both its factors there, and shared memory gives 32 numbers in the cycle in which 128
// multiplications could be done. Here a thread computes 8 × 8 scores, and then 8 × 8 entries of the
// output, at once: what it reads is used eight times, and sixteen loads of four numbers feed 256
// multiplications. Meanwhile the next piece of the keys or values is on its way.

#include "common.cuh"
#include "cp_async.cuh"

constexpr int THREADS = 128;
constexpr int QUERIES = 64; // rows of a block; a warp has 16 of them
constexpr int KEYS = 128;   // rows of a tile of keys and values
constexpr int ROWS = 8;     // of the scores, and of the output, that a thread computes at once,
constexpr int COLUMNS = 8;  // and their columns

// A tile comes in chunks of 16 KB: 32 columns of all its keys, or all columns of some values.
constexpr int CHUNK = 1024; // float4
constexpr int CHUNKS = KEYS * D / 4 / CHUNK;
constexpr int CHUNK_COLUMNS = D / CHUNKS;
constexpr int CHUNK_VALUES = KEYS / CHUNKS;

struct Shared {
    float4 chunks[2][CHUNK]; // one is used while the other is filled
    // One float4 of padding: the same column of two neighbouring rows is in different banks.
    float q[QUERIES][D + 4];
    float weights[QUERIES][KEYS + 4];
};

extern "C" __constant__ int attention_forward_launch[3] = {THREADS, QUERIES, int(sizeof(Shared))};

// A warp is sixteen pairs of lanes. The two of a pair have neighbouring rows and the same columns,
// and every pair has other columns. So in each load that feeds a product, either lanes n and n ^ 1
// or lanes n and n ^ 2 ask for the same float4. This the hardware rewards: it serves half a warp at
// once, where loads of 16 bytes are otherwise served by quarters.
__device__ inline int lane_column() { return threadIdx.x % 32 / 2; }
__device__ inline int row_of_block(int r) {
    return threadIdx.x / 32 * (2 * ROWS) + 2 * r + threadIdx.x % 2;
}

// The key of column t of the thread's scores: four neighbours, and the four that are 64 further.
__device__ inline int key_of_tile(int t) { return 4 * lane_column() + t % 4 + t / 4 * 64; }

// Its columns of the output are two float4, so that D / 8 pairs hold a row. Where that is fewer
// than sixteen, the pairs split the keys among them, and what they sum is added up in the end.
constexpr int OUTPUT_LANES = D / COLUMNS;
constexpr int SPLITS = 16 / OUTPUT_LANES;
__device__ inline int output_lane() { return lane_column() % OUTPUT_LANES; }
__device__ inline int split() { return lane_column() / OUTPUT_LANES; }

// ANCHOR: swizzle
// Where float4 `column` of a row lies in a chunk with rows of `width` float4. Every fourth row the
// columns change places. Without this, one column of rows 0, 4, 8, … 28, which eight pairs of lanes
// read at once, would lie in the same four banks; with it, it lies in all 32. And so do eight
// neighbouring columns of one row, as before.
template <int width> __device__ int place_in_chunk(int row, int column) {
    return row * width + (column ^ row / 4 % 8);
}
// ANCHOR_END: swizzle

// Four neighbouring numbers as one; the address of the first is a multiple of 16.
__device__ inline float4& float4_at(float& first) { return reinterpret_cast<float4&>(first); }
__device__ inline const float4& float4_at(const float& first) {
    return reinterpret_cast<const float4&>(first);
}

// The same as an array: one load.
__device__ inline void read(float (&to)[4], const float4& from) {
    const float4 x = from;
    to[0] = x.x, to[1] = x.y, to[2] = x.z, to[3] = x.w;
}

// The block's rows of q, (n, D), times `factor`; zeros past the end.
__device__ inline void load_queries(Shared& shared, const float* q, int first, int n,
                                    float factor) {
    for (int entry = threadIdx.x; entry < QUERIES * D / 4; entry += THREADS) {
        const int row = entry / (D / 4), column = entry % (D / 4) * 4;
        float4 x = make_float4(0, 0, 0, 0);
        if (first + row < n) x = float4_at(q[size_t(first + row) * D + column]);
        float4_at(shared.q[row][column]) =
            make_float4(factor * x.x, factor * x.y, factor * x.z, factor * x.w);
    }
}

// Begins to load a chunk: rows of `width` float4, from row `first` and column `first_column` of a
// matrix (n, D); zeros past its end. Neighbouring threads copy neighbouring float4, and a thread
// the same column of four neighbouring rows, which lies at the same place in each.
template <int width>
__device__ void begin_load(float4* chunk, const float* matrix, int first, int first_column,
                           int n) {
    const int own_row = 4 * (threadIdx.x / width), column = threadIdx.x % width;
    const float* from = matrix + size_t(first + own_row) * D + first_column + 4 * column;
    const int rows = n - first - own_row; // that are there
#pragma unroll
    for (int row = 0; row < CHUNK / width; row += 4 * THREADS / width) {
        float4* to = chunk + place_in_chunk<width>(own_row + row, column);
#pragma unroll
        for (int e = 0; e < 4; ++e)
            cp_async_16(to + e * width, from + (row + e) * D, row + e < rows ? 16 : 0);
    }
}

// ANCHOR: scores
// S += Q Kᵀ over the columns of a chunk of keys, of which `first_column` is the first.
__device__ inline void add_scores(float (&s)[ROWS][COLUMNS], const Shared& shared,
                                  const float4* chunk, int first_column) {
    const auto* q_rows = &shared.q[row_of_block(0)];
#pragma unroll 2
    for (int c = 0; c < CHUNK_COLUMNS / 4; ++c) {
        float q[ROWS][4]; // four columns of each of the thread's queries
#pragma unroll
        for (int r = 0; r < ROWS; ++r) read(q[r], float4_at(q_rows[2 * r][first_column + 4 * c]));
        const float4* keys = chunk + place_in_chunk<CHUNK_COLUMNS / 4>(key_of_tile(0), c);
#pragma unroll
        for (int t = 0; t < COLUMNS; ++t) {
            float k[4]; // the same columns of one of its keys
            read(k, keys[(key_of_tile(t) - key_of_tile(0)) * (CHUNK_COLUMNS / 4)]);
#pragma unroll
            for (int e = 0; e < 4; ++e)
#pragma unroll
                for (int r = 0; r < ROWS; ++r) s[r][t] += q[r][e] * k[e];
        }
    }
}
// ANCHOR_END: scores

// Hides the scores of keys that a query does not see, or that are not there.
__device__ inline void hide(float (&s)[ROWS][COLUMNS], int first_query, int first_key, int n_q,
                            int n_k) {
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const int seen = keys_seen_by(first_query + row_of_block(r), n_q, n_k) - first_key;
#pragma unroll
        for (int t = 0; t < COLUMNS; ++t)
            if (key_of_tile(t) >= seen) s[r][t] = MINUS_INFINITY;
    }
}

// The online softmax of kernel 1, for each of the thread's rows: scores become weights. At every
// tile the lanes of a row agree on its maximum; `sum` is of the thread's own keys until the end.
__device__ inline void online_softmax(float (&s)[ROWS][COLUMNS], float (&m)[ROWS],
                                      float (&sum)[ROWS], float (&o)[ROWS][COLUMNS]) {
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        float tile_max = s[r][0];
#pragma unroll
        for (int t = 1; t < COLUMNS; ++t) tile_max = fmaxf(tile_max, s[r][t]);
        const float m_new = fmaxf(m[r], max_of_lanes<16, 2>(tile_max));
        const float shift = m_new == MINUS_INFINITY ? 0 : m_new; // no key seen yet
        const float correction = exp2f(m[r] - shift);
        m[r] = m_new;
        sum[r] *= correction;
#pragma unroll
        for (int t = 0; t < COLUMNS; ++t) {
            s[r][t] = exp2f(s[r][t] - shift);
            sum[r] += s[r][t];
            o[r][t] *= correction;
        }
    }
}

// Weights go through shared memory, since the lanes of a row need those of each other.
__device__ inline void store_weights(Shared& shared, const float (&s)[ROWS][COLUMNS]) {
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
#pragma unroll
        for (int t = 0; t < COLUMNS; t += 4)
            float4_at(shared.weights[row_of_block(r)][key_of_tile(t)]) =
                make_float4(s[r][t], s[r][t + 1], s[r][t + 2], s[r][t + 3]);
}

// O += P V over a chunk of values, of which `first_value` is the first of the tile. Of every
// 16 · SPLITS values, a split takes sixteen.
__device__ inline void add_values(float (&o)[ROWS][COLUMNS], const Shared& shared,
                                  const float4* chunk, int first_value) {
    const auto* p_rows = &shared.weights[row_of_block(0)];
#pragma unroll 2
    for (int step = 0; step < CHUNK_VALUES / SPLITS; step += 4) {
        const int j = step + 16 * (split() + step / 16 * (SPLITS - 1));
        float p[ROWS][4]; // the weights of four values in each of the thread's rows
#pragma unroll
        for (int r = 0; r < ROWS; ++r) read(p[r], float4_at(p_rows[2 * r][first_value + j]));
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int column = output_lane() + half * OUTPUT_LANES;
            const float4* values = chunk + place_in_chunk<D / 4>(j, column);
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                float v[4]; // four columns of one of the values
                read(v, values[e * (D / 4)]);
#pragma unroll
                for (int t = 0; t < 4; ++t)
#pragma unroll
                    for (int r = 0; r < ROWS; ++r) o[r][4 * half + t] += p[r][e] * v[t];
            }
        }
    }
}

// Writes the thread's part of the output, (n_q, D), and of the log-sum-exp.
__device__ inline void store_output(const float (&o)[ROWS][COLUMNS], const float (&m)[ROWS],
                                    const float (&sum)[ROWS], float* output, float* lse,
                                    int first_query, int n_q) {
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const int i = first_query + row_of_block(r);
        const float total = sum_of_lanes<16, 2>(sum[r]);
        const float inverse = total > 0 ? 1 / total : 0;
        float o_r[COLUMNS];
#pragma unroll
        for (int t = 0; t < COLUMNS; ++t)
            o_r[t] = inverse * sum_of_lanes<SPLITS, 2 * OUTPUT_LANES>(o[r][t]);
        if (i >= n_q || split() > 0) continue;
        float* columns = output + size_t(i) * D + 4 * output_lane();
        float4_at(columns[0]) = make_float4(o_r[0], o_r[1], o_r[2], o_r[3]);
        float4_at(columns[4 * OUTPUT_LANES]) = make_float4(o_r[4], o_r[5], o_r[6], o_r[7]);
        if (lane_column() == 0) lse[i] = LN_2 * (m[r] + log2f(total));
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
attention_forward(const float* q, const float* k, const float* v, float* output, float* lse,
                  int n_q, int n_k, float scale) {
    Shared& shared = shared_memory<Shared>();
    // The last blocks see the most keys, if the attention is causal, and so begin first.
    const int first_query = (gridDim.x - 1 - blockIdx.x) * QUERIES, head = blockIdx.y;
    const int seen_by_all = keys_seen_by(first_query, n_q, n_k);
    const int seen_by_block = keys_seen_by(first_query + QUERIES - 1, n_q, n_k);
    q = head_of(q, head, n_q), k = head_of(k, head, n_k), v = head_of(v, head, n_k);

    // A tile's chunks of keys, then those of values, go to the two halves of the buffer in turns.
    const auto begin_keys = [&](int first_key, int chunk) {
        begin_load<CHUNK_COLUMNS / 4>(shared.chunks[chunk % 2], k, first_key,
                                      chunk * CHUNK_COLUMNS, n_k);
    };
    const auto begin_values = [&](int first_key, int chunk) {
        begin_load<D / 4>(shared.chunks[(CHUNKS + chunk) % 2], v,
                          first_key + chunk * CHUNK_VALUES, 0, n_k);
    };
    if (seen_by_block > 0) begin_keys(0, 0);
    load_queries(shared, q, first_query, n_q, LOG2_E * scale);
    float m[ROWS], sum[ROWS] = {}, o[ROWS][COLUMNS] = {};
    for (float& m_r : m) m_r = MINUS_INFINITY;
    for (int first_key = 0; first_key < seen_by_block; first_key += KEYS) {
        float s[ROWS][COLUMNS] = {};
#pragma unroll 1
        for (int chunk = 0; chunk < CHUNKS; ++chunk) {
            cp_async_commit();
            cp_async_wait<0>();
            __syncthreads(); // this chunk is there, and no thread reads the one before any more
            if (chunk + 1 < CHUNKS) begin_keys(first_key, chunk + 1);
            else begin_values(first_key, 0);
            add_scores(s, shared, shared.chunks[chunk % 2], chunk * CHUNK_COLUMNS);
        }
        // Only tiles that the diagonal or the end of the keys crosses.
        if (first_key + KEYS > seen_by_all) hide(s, first_query, first_key, n_q, n_k);
        online_softmax(s, m, sum, o);
        store_weights(shared, s);
#pragma unroll 1
        for (int chunk = 0; chunk < CHUNKS; ++chunk) {
            cp_async_commit();
            cp_async_wait<0>();
            __syncthreads(); // the same, and the weights are there
            if (chunk + 1 < CHUNKS) begin_values(first_key, chunk + 1);
            else if (first_key + KEYS < seen_by_block) begin_keys(first_key + KEYS, 0);
            add_values(o, shared, shared.chunks[(CHUNKS + chunk) % 2], chunk * CHUNK_VALUES);
        }
    }
    store_output(o, m, sum, head_of(output, head, n_q), lse + size_t(head) * n_q, first_query, n_q);
}
