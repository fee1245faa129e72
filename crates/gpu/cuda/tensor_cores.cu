// Kernel 3: flash attention on the tensor cores, in bf16.
//
// Kernel 2 does one product and one sum an instruction and a thread. Here an instruction of a warp
// multiplies a (16, 16) by a (16, 8) matrix: 64 products a thread. Everything else has to get out
// of its way:
// - q, k, v and the weights are bf16, half the bytes; scores, sums and outputs stay floats.
// - A warp owns 32 whole rows of queries. Its lanes hold the scores where the instruction left
//   them, and that is where the next product wants the weights: they go through no memory at all.
// - The tiles of keys and values arrive by asynchronous copies, two under way while one is read.
// - Each lane fetches one row of a small matrix; a swizzle puts the rows into different banks.

#include "common.cuh"
#include "tensor_cores.cuh"

constexpr int WARPS = 4;
constexpr int THREADS = 32 * WARPS;
constexpr int ROW_TILES = 2;                 // of 16 rows: what a warp reads of k and v serves both
constexpr int ROWS_A_WARP = 16 * ROW_TILES;
constexpr int QUERIES = ROWS_A_WARP * WARPS; // rows of a block
constexpr int KEYS = 64;                     // rows of a tile of keys or of values
constexpr int BLOCKS = D == 64 ? 3 : 2;      // on a multiprocessor, as many as the registers allow

struct Shared {
    Tile<QUERIES> q; // in the end, the output
    Tile<KEYS> ring[3];
};

extern "C" __constant__ int attention_forward_launch[3] = {THREADS, QUERIES, int(sizeof(Shared))};

// ANCHOR: fragments
// What a lane holds of its warp's 32 rows, where `mma_bf16` leaves it: of each 16 rows and 8
// columns, columns 2t and 2t + 1 of row g, then of row g + 8; g = lane / 4, t = lane % 4.
using Scores = float[ROW_TILES][KEYS / 8][4];
using Output = float[ROW_TILES][D / 8][4];
using OfRows = float[ROW_TILES][2]; // one number for row g, one for row g + 8
// ANCHOR_END: fragments

// The warp's first row within the block.
__device__ inline int first_row() { return threadIdx.x / 32 * ROWS_A_WARP; }

// Sends rows of a matrix (n, D) on their way into a tile; only `rows_left` of them exist, the
// others become zeros. Neighbouring threads copy neighbouring chunks.
template <int rows> __device__ void load(Tile<rows>& tile, const Bf16* matrix, int rows_left) {
    const int row = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS;
    const Bf16* from = matrix + row * D + chunk * 8;
    rows_left -= row;
#pragma unroll
    for (int down = 0; down < rows; down += THREADS / CHUNKS)
        cp_async_16(tile.at(row + down, chunk), from + down * D, down < rows_left ? 16 : 0);
}

// ANCHOR: scores
// S = Q Kᵀ for the warp's 32 queries and the tile's 64 keys, not yet scaled. `mma_bf16` wants its
// right factor by columns; the columns of Kᵀ are the rows of K, as they lie.
__device__ inline void scores(Scores& s, Tile<QUERIES>& q, Tile<KEYS>& k) {
    // Where this lane's row of four 8 × 8 matrices is: of Q top left, bottom left, top right,
    // bottom right; of K top left, top right, bottom left, bottom right.
    const auto q_row = move(shared_address(q.at(lane() % 16, lane() / 16)), first_row(), 0);
    const auto k_row = shared_address(k.at(lane() / 16 * 8 + lane() % 8, lane() / 8 % 2));
#pragma unroll
    for (int c = 0; c < D; c += 16) {
        unsigned q_part[ROW_TILES][4];
#pragma unroll
        for (int r = 0; r < ROW_TILES; ++r) ldmatrix_x4(q_part[r], move(q_row, 16 * r, c / 8));
#pragma unroll
        for (int j = 0; j < KEYS; j += 16) {
            unsigned k_part[4];
            ldmatrix_x4(k_part, move(k_row, j, c / 8));
#pragma unroll
            for (int r = 0; r < ROW_TILES; ++r) {
                mma_bf16(s[r][j / 8], q_part[r], k_part[0], k_part[1]);
                mma_bf16(s[r][j / 8 + 1], q_part[r], k_part[2], k_part[3]);
            }
        }
    }
}
// ANCHOR_END: scores

// Scores of keys that a query does not see become minus infinity. `first_query` is the warp's.
__device__ inline void mask(Scores& s, int first_query, int first_key, int n_q, int n_k) {
#pragma unroll
    for (int r = 0; r < ROW_TILES; ++r)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            const int i = first_query + 16 * r + lane() / 4 + e / 2 * 8;
            const int first_of_lane = first_key + 2 * (lane() % 4) + e % 2;
            const int seen = keys_seen_by(i, n_q, n_k) - first_of_lane;
#pragma unroll
            for (int j = 0; j < KEYS / 8; ++j)
                if (8 * j >= seen) s[r][j][e] = MINUS_INFINITY;
        }
}

// What was summed so far was measured from `m_before`; from now on it is measured from `m`.
__device__ inline void correct(Output& o, OfRows& sum, const OfRows& m_before, const OfRows& m) {
#pragma unroll
    for (int r = 0; r < ROW_TILES; ++r)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float correction = exp2f(m_before[r][half] - m[r][half]);
            sum[r][half] *= correction;
#pragma unroll
            for (int c = 0; c < D / 8; ++c)
                o[r][c][2 * half] *= correction, o[r][c][2 * half + 1] *= correction;
        }
}

// ANCHOR: follow
// The online softmax, first half. `m` is what a row's scores are measured from, in powers of two.
// It need not be the largest so far: a weight may be as large as 2⁸ without harm, in floats and in
// bf16. So `m` stays until a score exceeds it by more, which after the first few tiles is rare;
// then what was summed follows it. The branch is the whole warp's.
constexpr float LOWEST = -3.402823466e38f; // finite: the difference of two of it is zero, not NaN
constexpr float SLACK = 8;

__device__ inline void follow(OfRows& m, OfRows& sum, Output& o, const Scores& s,
                              float to_powers_of_two) {
    OfRows m_before;
    bool moved = false;
#pragma unroll
    for (int r = 0; r < ROW_TILES; ++r)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float largest = MINUS_INFINITY;
#pragma unroll
            for (int j = 0; j < KEYS / 8; ++j)
                largest = fmaxf(largest, fmaxf(s[r][j][2 * half], s[r][j][2 * half + 1]));
            largest = to_powers_of_two * max_of_lanes<4>(largest); // a row belongs to four lanes
            m_before[r][half] = m[r][half];
            if (largest > m[r][half] + SLACK) m[r][half] = largest, moved = true;
        }
    if (__any_sync(~0u, moved)) correct(o, sum, m_before, m);
}
// ANCHOR_END: follow

// ANCHOR: weights
// The online softmax, second half: the weights of 16 keys from `j` on, as the left factor of a
// product, and their sum; each lane sums its own, and the four of a row add up at the very end. The
// scores lie in two tiles of 8 keys, side by side; as one of 16 keys, the weights are wanted in the
// same lanes. The scale costs nothing: it is in the multiply-add of the exponent.
__device__ inline void weights(unsigned (&a)[4], OfRows& sum, const Scores& s, const OfRows& m,
                               int r, int j, float to_powers_of_two) {
#pragma unroll
    for (int part = 0; part < 4; ++part) {
        const int half = part % 2; // row g or row g + 8, of the left 8 keys, then of the right
        const float* pair = &s[r][j / 8 + part / 2][2 * half];
        const float left = exp2f(to_powers_of_two * pair[0] - m[r][half]);
        const float right = exp2f(to_powers_of_two * pair[1] - m[r][half]);
        sum[r][half] += left + right;
        a[part] = pack_bf16(left, right);
    }
}
// ANCHOR_END: weights

// O += A V, 16 keys at a time: while the tensor cores work on some, the weights of the next are
// computed. `mma_bf16` wants columns of V, whose rows are in shared memory: it is transposed on its
// way.
__device__ inline void weigh(Output& o, OfRows& sum, const Scores& s, const OfRows& m,
                             Tile<KEYS>& v, float to_powers_of_two) {
    const auto v_row = shared_address(v.at(lane() % 16, lane() / 16));
#pragma unroll
    for (int j = 0; j < KEYS; j += 16) {
        unsigned a[ROW_TILES][4];
#pragma unroll
        for (int r = 0; r < ROW_TILES; ++r) weights(a[r], sum, s, m, r, j, to_powers_of_two);
#pragma unroll
        for (int c = 0; c < D; c += 16) {
            unsigned v_part[4]; // top left, bottom left, top right, bottom right
            ldmatrix_x4_trans(v_part, move(v_row, j, c / 8));
#pragma unroll
            for (int r = 0; r < ROW_TILES; ++r) {
                mma_bf16(o[r][c / 8], a[r], v_part[0], v_part[1]);
                mma_bf16(o[r][c / 8 + 1], a[r], v_part[2], v_part[3]);
            }
        }
    }
}

// Output and log-sum-exp; both begin at the warp's first row, `rows_left` of them exist. The lanes
// of a row have four bytes each of a chunk. They put them together in the part of shared memory
// where their warp's queries were; then neighbouring lanes write neighbouring chunks.
__device__ inline void store(Bf16* output, float* lse, Tile<QUERIES>& staged, const Output& o,
                             const OfRows& m, const OfRows& sum, int rows_left) {
#pragma unroll
    for (int r = 0; r < ROW_TILES; ++r)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = 16 * r + lane() / 4 + half * 8;
            const float total = sum_of_lanes<4>(sum[r][half]);
            const float inverse = total > 0 ? 1 / total : 0; // a row that sees no key
#pragma unroll
            for (int c = 0; c < CHUNKS; ++c) {
                const float* pair = &o[r][c][2 * half];
                auto* chunk = reinterpret_cast<unsigned*>(staged.at(first_row() + row, c));
                chunk[lane() % 4] = pack_bf16(inverse * pair[0], inverse * pair[1]);
            }
            if (lane() % 4 == 0 && row < rows_left) lse[row] = LN_2 * (m[r][half] + log2f(total));
        }
    __syncwarp(); // the warp's rows are there
    const int row = lane() / CHUNKS, chunk = lane() % CHUNKS;
#pragma unroll
    for (int down = 0; down < ROWS_A_WARP; down += 32 / CHUNKS)
        if (row + down < rows_left)
            *reinterpret_cast<uint4*>(output + (row + down) * D + chunk * 8) =
                *staged.at(first_row() + row + down, chunk);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
attention_forward(const Bf16* q, const Bf16* k, const Bf16* v, Bf16* output, float* lse,
                  int n_q, int n_k, float scale) { // scale > 0
    Shared& shared = shared_memory<Shared>();
    // The last blocks see the most keys, if the attention is causal, and so begin first.
    const int first_query = (gridDim.x - 1 - blockIdx.x) * QUERIES, head = blockIdx.y;
    const int seen_by_first = keys_seen_by(first_query, n_q, n_k);
    const int seen_by_block = keys_seen_by(first_query + QUERIES - 1, n_q, n_k);
    const float to_powers_of_two = LOG2_E * scale;
    k = head_of(k, head, n_k), v = head_of(v, head, n_k);

    load(shared.q, head_of(q, head, n_q) + size_t(first_query) * D, n_q - first_query);
    load(shared.ring[0], k, seen_by_block);
    cp_async_commit();
    load(shared.ring[1], v, seen_by_block);
    cp_async_commit();

    Output o = {};
    OfRows m, sum = {};
    for (auto& of_two : m) of_two[0] = of_two[1] = LOWEST;
    int slot = 0; // of the ring: the tile that is read next. The one before it is free.
    for (int first_key = 0; first_key < seen_by_block; first_key += KEYS) {
        const int keys_left = seen_by_block - (first_key + KEYS); // for the tiles after this one
        cp_async_wait<1>(); // all but the latest group: the keys are there
        __syncthreads();    // other threads' part of them, too; and the last values have been read
        k += KEYS * D;
        if (keys_left > 0) load(shared.ring[(slot + 2) % 3], k, keys_left);
        cp_async_commit(); // even if it is empty: the waits count groups

        Scores s = {};
        scores(s, shared.q, shared.ring[slot]);
        // Only in tiles that the diagonal or the end crosses there is something to hide.
        if (first_key + KEYS > seen_by_first)
            mask(s, first_query + first_row(), first_key, n_q, n_k);
        follow(m, sum, o, s, to_powers_of_two);

        slot = (slot + 1) % 3;
        cp_async_wait<1>(); // the values are there
        __syncthreads();    // and the keys have been read
        v += KEYS * D;
        if (keys_left > 0) load(shared.ring[(slot + 2) % 3], v, keys_left);
        cp_async_commit();
        weigh(o, sum, s, m, shared.ring[slot], to_powers_of_two);
        slot = (slot + 1) % 3;
    }

    cp_async_wait<0>();
    __syncthreads(); // a block that sees no key has not yet waited: its queries lie where it writes
    const size_t row = size_t(head) * n_q + first_query + first_row();
    store(output + row * D, lse + row, shared.q, o, m, sum, n_q - first_query - first_row());
}
