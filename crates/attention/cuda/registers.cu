// Kernel 2: flash attention out of registers. In kernel 1 every multiplication fetches both its factors
// from shared memory, and shared memory delivers 32 numbers a cycle where 128 multiplications could be
// done. Here a thread computes 8 × 8 scores, and then 8 × 8 entries of the output, at once: sixteen loads
// of four numbers feed 256 multiplications. And the next piece of the keys or values is on its way to
// shared memory while the present one is used.

#include "common.cuh"
#include "cp_async.cuh"

// ANCHOR: shape
constexpr int THREADS = 128;
constexpr int QUERIES = 64;              // rows of a block, 16 for each warp
constexpr int KEYS = 128;                // rows of a tile of keys and values
constexpr int ROWS = 8;                  // a thread has ROWS rows of the scores and of the output,
constexpr int COLUMNS = 8;               // and COLUMNS columns of each
constexpr int CHUNK = 1024;              // a tile comes in chunks of 1024 float4 (16 KB):
constexpr int CHUNKS = KEYS * D / 4 / CHUNK;
constexpr int CHUNK_COLUMNS = D / CHUNKS;  // 32 columns of all the keys of the tile,
constexpr int CHUNK_VALUES = KEYS / CHUNKS; // or all the columns of some of its values

struct Shared {
    float4 chunks[2][CHUNK]; // one is used while the other is filled
    // A float4 of padding: two neighbouring rows, read at the same column, are in different banks.
    float q[QUERIES][D + 4];
    float weights[QUERIES][KEYS + 4];
};
// ANCHOR_END: shape

extern "C" __constant__ int attention_forward_launch[3] = {THREADS, QUERIES, int(sizeof(Shared))};

// ANCHOR: place
// The two lanes of a pair have neighbouring rows, the sixteen pairs of a warp have different columns. So
// in any load of a tile's factors, lanes n and n ^ 1, or lanes n and n ^ 2, ask for the same address:
// then the hardware serves half a warp at once, not a quarter, which doubles what a load delivers.
__device__ inline int lane_column() { return threadIdx.x % 32 / 2; }
__device__ inline int row_of_block(int r) {
    return threadIdx.x / 32 * (2 * ROWS) + 2 * r + threadIdx.x % 2;
}

// The thread's scores are those of keys 4 · lane_column() + 0, 1, 2, 3 of the tile, and 64 further on.
__device__ inline int key_of_tile(int t) { return 4 * lane_column() + t % 4 + t / 4 * 64; }

// The thread's entries of the output are two float4 of a row. A row has D / 8 lanes; where that is fewer
// than the 16 that share the row, the others take other keys, and what they sum is added in the end.
constexpr int OUTPUT_LANES = D / COLUMNS;
constexpr int SPLITS = 16 / OUTPUT_LANES;
__device__ inline int output_lane() { return lane_column() % OUTPUT_LANES; }
__device__ inline int split() { return lane_column() / OUTPUT_LANES; }
// ANCHOR_END: place

// ANCHOR: swizzle
// Where a chunk whose rows are `width` float4 keeps float4 `column` of a row. The place in the row turns
// with every fourth row: eight lanes that read the same column of rows 0, 4, 8, … 28 meet eight
// different groups of four banks, and so do eight that read eight columns of one row.
template <int width> __device__ int place_in_chunk(int row, int column) {
    return row * width + (column ^ row / 4 % 8);
}
// ANCHOR_END: swizzle

__device__ inline void unpack(float (&to)[4], const float4& from) {
    const float4 x = from;
    to[0] = x.x, to[1] = x.y, to[2] = x.z, to[3] = x.w;
}

// The block's queries, times `factor`; zeros past the end of the matrix (n, D).
__device__ inline void load_queries(Shared& shared, const float* q, int first, int n, float factor) {
    for (int entry = threadIdx.x; entry < QUERIES * D / 4; entry += THREADS) {
        const int row = entry / (D / 4), column = entry % (D / 4) * 4;
        float4 x = make_float4(0, 0, 0, 0);
        if (first + row < n)
            x = *reinterpret_cast<const float4*>(q + size_t(first + row) * D + column);
        x = make_float4(factor * x.x, factor * x.y, factor * x.z, factor * x.w);
        *reinterpret_cast<float4*>(&shared.q[row][column]) = x;
    }
}

// ANCHOR: load
// Begins to load a chunk: from row `first` and column `first_column` of a matrix (n, D) on, rows of
// `width` float4; zeros past the end.
template <int width>
__device__ void begin_load(float4* chunk, const float* matrix, int first, int first_column, int n) {
    const int first_row = threadIdx.x / width * 4, column = threadIdx.x % width;
    const float* from = matrix + size_t(first + first_row) * D + first_column + 4 * column;
    const int rows = n - first - first_row;
#pragma unroll
    for (int fours = 0; fours < CHUNK / width; fours += 4 * THREADS / width) {
        float4* to = chunk + place_in_chunk<width>(first_row + fours, column);
#pragma unroll
        for (int row = fours; row < fours + 4; ++row)
            cp_async_16(to + (row - fours) * width, from + row * D, row < rows ? 16 : 0);
    }
}
// ANCHOR_END: load

// ANCHOR: scores
// S += Q Kᵀ over the chunk's columns of q and k, of which `first_column` is the first.
__device__ inline void add_scores(float (&s)[ROWS][COLUMNS], const Shared& shared,
                                  const float4* chunk, int first_column) {
    const float (*q_rows)[D + 4] = &shared.q[row_of_block(0)];
#pragma unroll 2
    for (int c = 0; c < CHUNK_COLUMNS / 4; ++c) {
        float q[ROWS][4]; // four columns of the thread's rows
#pragma unroll
        for (int r = 0; r < ROWS; ++r)
            unpack(q[r], *reinterpret_cast<const float4*>(&q_rows[2 * r][first_column + 4 * c]));
        const float4* keys = chunk + place_in_chunk<CHUNK_COLUMNS / 4>(key_of_tile(0), c);
#pragma unroll
        for (int t = 0; t < COLUMNS; ++t) {
            float k[4]; // the same columns of one of its keys
            unpack(k, keys[(key_of_tile(t) - key_of_tile(0)) * (CHUNK_COLUMNS / 4)]);
#pragma unroll
            for (int e = 0; e < 4; ++e)
#pragma unroll
                for (int r = 0; r < ROWS; ++r) s[r][t] += q[r][e] * k[e];
        }
    }
}
// ANCHOR_END: scores

// Hides the scores of keys that the thread's queries do not see, or that are not there.
__device__ inline void hide(float (&s)[ROWS][COLUMNS], int first_query, int first_key, int n_q, int n_k) {
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const int seen = keys_seen_by(first_query + row_of_block(r), n_q, n_k) - first_key;
#pragma unroll
        for (int t = 0; t < COLUMNS; ++t)
            if (key_of_tile(t) >= seen) s[r][t] = MINUS_INFINITY;
    }
}

// ANCHOR: softmax
// The online softmax of kernel 1, for each of the thread's rows. Scores become weights. `sum` is of the
// thread's own keys: only the maximum must be known to all lanes of the row at every tile.
__device__ inline void weigh(float (&s)[ROWS][COLUMNS], float (&m)[ROWS], float (&sum)[ROWS],
                             float (&o)[ROWS][COLUMNS]) {
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
// ANCHOR_END: softmax

// The weights go through shared memory: the thread that multiplies a weight is not the one that has it.
// Both are of one warp.
__device__ inline void store_weights(Shared& shared, const float (&s)[ROWS][COLUMNS]) {
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
#pragma unroll
        for (int t = 0; t < COLUMNS; t += 4)
            *reinterpret_cast<float4*>(&shared.weights[row_of_block(r)][key_of_tile(t)]) =
                make_float4(s[r][t], s[r][t + 1], s[r][t + 2], s[r][t + 3]);
}

// ANCHOR: values
// O += P V over the chunk's values, of which `first_value` is the first of the tile. The splits take
// turns by runs of sixteen values.
__device__ inline void add_values(float (&o)[ROWS][COLUMNS], const Shared& shared,
                                  const float4* chunk, int first_value) {
    const float (*p_rows)[KEYS + 4] = &shared.weights[row_of_block(0)];
#pragma unroll 2
    for (int step = 0; step < CHUNK_VALUES / SPLITS; step += 4) {
        const int j = step + 16 * (split() + step / 16 * (SPLITS - 1));
        float p[ROWS][4]; // four weights of the thread's rows
#pragma unroll
        for (int r = 0; r < ROWS; ++r)
            unpack(p[r], *reinterpret_cast<const float4*>(&p_rows[2 * r][first_value + j]));
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float4* values =
                chunk + place_in_chunk<D / 4>(j, output_lane() + half * OUTPUT_LANES);
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                float v[4]; // four columns of one of the values
                unpack(v, values[e * (D / 4)]);
#pragma unroll
                for (int t = 0; t < 4; ++t)
#pragma unroll
                    for (int r = 0; r < ROWS; ++r) o[r][4 * half + t] += p[r][e] * v[t];
            }
        }
    }
}
// ANCHOR_END: values

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
        float4* row = reinterpret_cast<float4*>(output + size_t(i) * D);
        row[output_lane()] = make_float4(o_r[0], o_r[1], o_r[2], o_r[3]);
        row[output_lane() + OUTPUT_LANES] = make_float4(o_r[4], o_r[5], o_r[6], o_r[7]);
        if (lane_column() == 0) lse[i] = LN_2 * (m[r] + log2f(total));
    }
}

// Budget: attention_forward 255 registers, no spills
// ANCHOR: kernel
extern "C" __global__ void __launch_bounds__(THREADS, 2)
attention_forward(const float* q, const float* k, const float* v, float* output, float* lse,
                  int n_q, int n_k, float scale) {
    Shared& shared = shared_memory<Shared>();
    // The last blocks see the most keys, if the attention is causal, and so begin first.
    const int first_query = (gridDim.x - 1 - blockIdx.x) * QUERIES, head = blockIdx.y;
    const int seen_by_all = keys_seen_by(first_query, n_q, n_k);
    const int seen_by_block = keys_seen_by(first_query + QUERIES - 1, n_q, n_k);
    q = head_of(q, head, n_q), k = head_of(k, head, n_k), v = head_of(v, head, n_k);

    const auto begin_keys = [&](int chunk, int first_key, int number) {
        begin_load<CHUNK_COLUMNS / 4>(shared.chunks[chunk % 2], k, first_key, number * CHUNK_COLUMNS,
                                      n_k);
    };
    const auto begin_values = [&](int chunk, int first_key, int number) {
        begin_load<D / 4>(shared.chunks[chunk % 2], v, first_key + number * CHUNK_VALUES, 0, n_k);
    };

    if (seen_by_block > 0) begin_keys(0, 0, 0);
    load_queries(shared, q, first_query, n_q, LOG2_E * scale);
    float m[ROWS], sum[ROWS] = {}, o[ROWS][COLUMNS] = {};
    for (float& m_r : m) m_r = MINUS_INFINITY;
    for (int first_key = 0; first_key < seen_by_block; first_key += KEYS) {
        float s[ROWS][COLUMNS] = {};
#pragma unroll 1
        for (int chunk = 0; chunk < CHUNKS; ++chunk) {
            cp_async_commit();
            cp_async_wait<0>();
            __syncthreads(); // this chunk is there, and nobody reads the one before any more
            if (chunk + 1 < CHUNKS) begin_keys(chunk + 1, first_key, chunk + 1);
            else begin_values(CHUNKS, first_key, 0);
            add_scores(s, shared, shared.chunks[chunk % 2], chunk * CHUNK_COLUMNS);
        }
        if (first_key + KEYS > seen_by_all) hide(s, first_query, first_key, n_q, n_k);
        weigh(s, m, sum, o);
        store_weights(shared, s);
#pragma unroll 1
        for (int chunk = 0; chunk < CHUNKS; ++chunk) {
            cp_async_commit();
            cp_async_wait<0>();
            __syncthreads(); // the same, and the weights are there
            if (chunk + 1 < CHUNKS) begin_values(CHUNKS + chunk + 1, first_key, chunk + 1);
            else if (first_key + KEYS < seen_by_block) begin_keys(0, first_key + KEYS, 0);
            add_values(o, shared, shared.chunks[(CHUNKS + chunk) % 2], chunk * CHUNK_VALUES);
        }
    }
    store_output(o, m, sum, head_of(output, head, n_q), lse + size_t(head) * n_q, first_query, n_q);
}
// ANCHOR_END: kernel
