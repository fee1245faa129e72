// Kernel 7: decoding. One query of a text, or a few, against keys and values that lie in pages.
//
// A head has as many rows of scores as it has queries. So the tiles of kernel 3 would be all but
// empty here, and few blocks would share all the keys. Here
// - a tile of 16 rows holds the heads of a group, which read the same keys, query after query;
// - the keys are cut into splits of 512, and a block takes one: a long text fills the GPU alone;
// - each warp reads pages of its own, through its own slots of shared memory, and waits for no
//   other warp until the end;
// - a second kernel merges the splits, in the order of the text.
// The cut depends on nothing but a key's place. So the bits of an output don't depend on other
// texts, other queries or what comes after, nor on how many multiprocessors there are.

#include "common.cuh"
#include "tensor_cores.cuh"

constexpr int WARPS = 4;
constexpr int THREADS = 32 * WARPS;
constexpr int ROWS = 16;         // of a tile: row r is head r % GROUP of the group, query r / GROUP
constexpr int PAGE = 16;         // keys of a page
constexpr int SPLIT = 32 * PAGE; // keys of a block: a lane knows the number of one page
constexpr int SLOTS = 3;         // pages of a warp in shared memory: two on their way, one is read

struct Page {
    Tile<PAGE> k, v;
};

union Shared {
    Page pages[WARPS][SLOTS];
    struct { // in the end, what each warp found
        float o[WARPS][ROWS][D + 8]; // eight words of padding: rows begin in other banks
        float m[WARPS][ROWS], sum[WARPS][ROWS];
    } found;
};

extern "C" __constant__ int decode_split_launch[3] = {THREADS, ROWS, int(sizeof(Shared))};

__device__ inline int divided_up(int a, int b) { return (a + b - 1) / b; }

// Where the results of a split lie: of each head of keys, split by split, tile by tile of queries.
__device__ inline size_t row_of_part(int kv_head, int split, int splits, int row, int n_q) {
    const int rows = divided_up(GROUP * n_q, ROWS) * ROWS;
    return (size_t(kv_head) * splits + split) * rows + row;
}

// ANCHOR: page
// Sends a page on its way: 16 keys, and their values, from wherever the table says. Only
// `rows_left` of them exist, and the others become zeros: what lies there may be no number, and
// 0 · NaN is NaN. Neighbouring lanes copy neighbouring chunks, a lane the same one of every fourth
// or second row.
__device__ inline void load(Page& page, const Bf16* k, const Bf16* v, int number, int rows_left) {
    const int own_row = lane() / CHUNKS, chunk = lane() % CHUNKS;
    const size_t first = (size_t(number) * PAGE + own_row) * D + chunk * 8;
    k += first, v += first;
#pragma unroll
    for (int down = 0; down < PAGE; down += 32 / CHUNKS) {
        const int bytes = own_row + down < rows_left ? 16 : 0;
        cp_async_16(page.k.at(own_row + down, chunk), k + down * D, bytes);
        cp_async_16(page.v.at(own_row + down, chunk), v + down * D, bytes);
    }
}
// ANCHOR_END: page

// The lane's part of one of its two queries, where `mma_bf16` wants a left factor; zeros if there is
// no such query. Each is read once by each warp, and so goes through no shared memory.
__device__ inline void load(unsigned (&queries)[D / 16][4], const Bf16* q, int half, bool exists) {
    const auto* pairs = reinterpret_cast<const unsigned*>(q) + lane() % 4;
#pragma unroll
    for (int c = 0; c < D / 8; ++c)
        queries[c / 2][half + c % 2 * 2] = exists ? pairs[4 * c] : 0;
}

// What a lane knows of its two rows of the tile, g and g + 8: the query, how many keys it sees, and
// the head; then the online softmax of kernel 1.
struct OfRow {
    int head, i, seen;
    float m, sum; // the largest score so far, in powers of two; the lane's own part of the sum
};
constexpr float LOWEST = -3.402823466e38f; // finite: the difference of two of it is zero, not NaN

// S = Q Kᵀ for the 16 rows and the 16 keys of a page; then in powers of two, and hidden where a row
// doesn't see a key.
__device__ inline void scores(float (&s)[2][4], const unsigned (&q)[D / 16][4], Tile<PAGE>& k,
                              const OfRow (&rows)[2], int first_key, int n_q, int n_k,
                              float scale) {
    const auto k_row = shared_address(k.at(lane() / 16 * 8 + lane() % 8, lane() / 8 % 2));
#pragma unroll
    for (int c = 0; c < D; c += 16) {
        unsigned part[4];
        ldmatrix_x4(part, move(k_row, 0, c / 8));
        mma_bf16(s[0], q[c / 16], part[0], part[1]);
        mma_bf16(s[1], q[c / 16], part[2], part[3]);
    }
#pragma unroll
    for (int e = 0; e < 8; ++e) {
        const int key = first_key + e / 4 * 8 + 2 * (lane() % 4) + e % 2;
        const OfRow& row = rows[e / 2 % 2];
        float& score = s[e / 4][e % 4];
        const bool is_seen = HAS_MASK ? sees(row.i, key, n_q, n_k) : key < row.seen;
        const int distance = row.i + n_k - n_q - key;
        score = is_seen ? changed_power(LOG2_E * scale * score, row.head, distance)
                        : MINUS_INFINITY;
    }
}

// The online softmax: scores become weights, as the left factor of a product.
__device__ inline void online_softmax(unsigned (&a)[4], float (&s)[2][4], OfRow (&rows)[2],
                                      float (&o)[D / 8][4]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) { // row g, then row g + 8: four lanes have it together
        OfRow& row = rows[half];
        float *left = &s[0][2 * half], *right = &s[1][2 * half];
        const float largest = fmaxf(fmaxf(left[0], left[1]), fmaxf(right[0], right[1]));
        const float m = fmaxf(row.m, max_of_lanes<4>(largest));
        const float correction = exp2f(row.m - m);
        left[0] = exp2f(left[0] - m), left[1] = exp2f(left[1] - m);
        right[0] = exp2f(right[0] - m), right[1] = exp2f(right[1] - m);
        row.m = m;
        row.sum = correction * row.sum + left[0] + left[1] + right[0] + right[1];
#pragma unroll
        for (int c = 0; c < D / 8; ++c)
            o[c][2 * half] *= correction, o[c][2 * half + 1] *= correction;
        a[half] = pack_bf16(left[0], left[1]), a[half + 2] = pack_bf16(right[0], right[1]);
    }
}

// O += A V for the 16 rows and the 16 keys.
__device__ inline void weigh(float (&o)[D / 8][4], const unsigned (&a)[4], Tile<PAGE>& v) {
    const auto v_row = shared_address(v.at(lane() % 16, lane() / 16));
#pragma unroll
    for (int c = 0; c < D; c += 16) {
        unsigned part[4];
        ldmatrix_x4_trans(part, move(v_row, 0, c / 8));
        mma_bf16(o[c / 8], a, part[0], part[1]);
        mma_bf16(o[c / 8 + 1], a, part[2], part[3]);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
decode_split(const Bf16* q, const Bf16* k, const Bf16* v, const int* page_table, const int* lengths,
             float* part, float* part_lse, int n_q, int longest, float scale) {
    Shared& shared = shared_memory<Shared>();
    const int warp = threadIdx.x / 32, kv_head = blockIdx.y;
    const int tiles = divided_up(GROUP * n_q, ROWS), splits = divided_up(longest, SPLIT);
    const int n_k = lengths[kv_head]; // of this text
    const int split = blockIdx.x / tiles, first_row = blockIdx.x % tiles * ROWS;
    const int all_pages = divided_up(longest, PAGE), first_page = split * (SPLIT / PAGE);

    OfRow rows[2];
    unsigned queries[D / 16][4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = first_row + lane() / 4 + 8 * half;
        const int head = kv_head * GROUP + row % GROUP, i = row / GROUP;
        rows[half] = {head, i, keys_seen_by(i, n_q, n_k), LOWEST, 0};
        load(queries, head_of(q, head, n_q) + size_t(i) * D, half, i < n_q);
    }

    // The last query of the tile sees the most. The warp's lanes keep the pages' numbers.
    const int last = min(n_q, (first_row + ROWS - 1) / GROUP + 1) - 1;
    const int seen_pages = divided_up(keys_seen_by(last, n_q, n_k), PAGE);
    const int pages = min(SPLIT / PAGE, seen_pages - first_page);
    // Behind those of its sinks, a mask hides the keys before the first that the first query sees.
    const int first_seen = first_key_of(first_row / GROUP, n_q, n_k);
    const auto is_seen = [&](int page) {
        const int first = (first_page + page) * PAGE;
        return !HAS_MASK || first < SINKS || first + PAGE > first_seen;
    };
    // ANCHOR: begin
    page_table += size_t(kv_head) * all_pages + first_page;
    const int own_number = lane() < pages ? page_table[lane()] : 0;
    const auto begin_page = [&](int page, int slot) {
        const int number = __shfl_sync(~0u, own_number, page % 32);
        const int rows_left = n_k - (first_page + page) * PAGE;
        if (page < pages && is_seen(page)) load(shared.pages[warp][slot], k, v, number, rows_left);
        cp_async_commit(); // even if it is empty: the waits count groups
    };
    // ANCHOR_END: begin

    // ANCHOR: loop
    float o[D / 8][4] = {};
    begin_page(warp, 0);
    begin_page(warp + WARPS, 1);
    for (int page = warp, slot = 0; page < pages; page += WARPS, slot = (slot + 1) % SLOTS) {
        cp_async_wait<1>(); // all but the latest: the page is there
        __syncwarp();       // other lanes' part of it, too; and the page before it was read
        begin_page(page + 2 * WARPS, (slot + 2) % SLOTS);
        if (!is_seen(page)) continue;
        Page& here = shared.pages[warp][slot];
        float s[2][4] = {};
        unsigned weights[4];
        scores(s, queries, here.k, rows, (first_page + page) * PAGE, n_q, n_k, scale);
        online_softmax(weights, s, rows, o);
        weigh(o, weights, here.v);
    }
    // ANCHOR_END: loop
    cp_async_wait<0>();

    __syncthreads(); // no warp reads pages any more: what the warps found goes there
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = lane() / 4 + 8 * half;
        const float sum = sum_of_lanes<4>(rows[half].sum);
        if (lane() % 4 == 0)
            shared.found.m[warp][row] = rows[half].m, shared.found.sum[warp][row] = sum;
#pragma unroll
        for (int c = 0; c < D / 8; ++c)
#pragma unroll
            for (int e = 0; e < 2; ++e)
                shared.found.o[warp][row][8 * c + 2 * (lane() % 4) + e] = o[c][2 * half + e];
    }
    __syncthreads(); // all of it is there

    // Four partial results become one, as *Online softmax* merges them.
    const int rows_left = min(ROWS, GROUP * n_q - first_row);
    for (int e = threadIdx.x; e < rows_left * D; e += THREADS) {
        const int row = e / D, column = e % D;
        float m = LOWEST, sum = 0, merged = 0;
#pragma unroll
        for (int w = 0; w < WARPS; ++w) m = fmaxf(m, shared.found.m[w][row]);
#pragma unroll
        for (int w = 0; w < WARPS; ++w) {
            const float weight = exp2f(shared.found.m[w][row] - m);
            sum += weight * shared.found.sum[w][row];
            merged += weight * shared.found.o[w][row][column];
        }
        const size_t to = row_of_part(kv_head, split, splits, first_row + row, n_q);
        part[to * D + column] = sum > 0 ? merged / sum : 0;
        if (column == 0) part_lse[to] = m + log2f(sum); // in powers of two
    }
}

constexpr int MERGING_WARPS = 16;
constexpr int AT_ONCE = 4; // splits whose results are on their way to a warp together

struct Merging {
    float parts[MERGING_WARPS][AT_ONCE][D];
    float most[MERGING_WARPS], sum[MERGING_WARPS], o[MERGING_WARPS][D];
};

extern "C" __constant__ int decode_merge_launch[3] = {32 * MERGING_WARPS, 1, int(sizeof(Merging))};

// Merges the splits of one query and head: a warp takes every sixteenth of them, in order, and the
// warps' sums are added in order. A split that saw no key has the weight 0.
extern "C" __global__ void __launch_bounds__(32 * MERGING_WARPS)
decode_merge(const float* part, const float* part_lse, Bf16* output, float* lse, int n_q,
             int longest) {
    Merging& shared = shared_memory<Merging>();
    const int i = blockIdx.x, head = blockIdx.y, warp = threadIdx.x / 32;
    const int splits = divided_up(longest, SPLIT), row = i * GROUP + head % GROUP;
    const auto at = [&](int split) {
        return row_of_part(head / GROUP, split, splits, row, n_q);
    };
    float most = MINUS_INFINITY;
    for (int split = threadIdx.x; split < splits; split += 32 * MERGING_WARPS)
        most = fmaxf(most, part_lse[at(split)]);
    most = max_of_lanes<32>(most);
    if (lane() == 0) shared.most[warp] = most;
    __syncthreads(); // the largest of every warp is there
#pragma unroll
    for (int w = 0; w < MERGING_WARPS; ++w) most = fmaxf(most, shared.most[w]);
    if (most == MINUS_INFINITY) most = 0; // no split saw a key

    // ANCHOR: merge
    float sum = 0, o[D / 32] = {}; // columns lane, lane + 32, …
    for (int first = warp; first < splits; first += AT_ONCE * MERGING_WARPS) {
#pragma unroll
        for (int e = 0; e < AT_ONCE; ++e) {
            const int split = first + e * MERGING_WARPS, bytes = split < splits ? 16 : 0;
            const float* from = part + at(min(split, splits - 1)) * D + 4 * lane();
            if (lane() < D / 4) cp_async_16(&shared.parts[warp][e][4 * lane()], from, bytes);
        }
        cp_async_commit();
        const int own = first + lane() * MERGING_WARPS; // the split whose weight the lane computes
        const bool has_own = lane() < AT_ONCE && own < splits;
        const float own_weight = has_own ? exp2f(part_lse[at(own)] - most) : 0;
        cp_async_wait<0>();
        __syncwarp(); // the results are there
#pragma unroll
        for (int e = 0; e < AT_ONCE; ++e) {
            const float weight = __shfl_sync(~0u, own_weight, e);
            sum += weight;
#pragma unroll
            for (int c = 0; c < D / 32; ++c)
                o[c] += weight * shared.parts[warp][e][32 * c + lane()];
        }
        __syncwarp(); // and were read
    }
    // ANCHOR_END: merge
#pragma unroll
    for (int c = 0; c < D / 32; ++c) shared.o[warp][32 * c + lane()] = o[c];
    if (lane() == 0) shared.sum[warp] = sum;
    __syncthreads(); // so are the sums

    if (threadIdx.x >= D / 2) return; // a thread writes two columns
    float left = 0, right = 0;
    sum = 0;
#pragma unroll
    for (int w = 0; w < MERGING_WARPS; ++w) {
        sum += shared.sum[w];
        left += shared.o[w][2 * threadIdx.x], right += shared.o[w][2 * threadIdx.x + 1];
    }
    const float inverse = sum > 0 ? 1 / sum : 0;
    const size_t to = size_t(head) * n_q + i;
    reinterpret_cast<unsigned*>(output + to * D)[threadIdx.x] =
        pack_bf16(inverse * left, inverse * right);
    if (threadIdx.x == 0) lse[to] = LN_2 * (most + log2f(sum));
}
