// Kernel 0: the equations, one kernel each. The (n_q, n_k) matrix is written
// three times and read four.

#include "common.cuh"

constexpr int THREADS = 128;

// A block is one row of one head.
extern "C" __constant__ int scores_launch[3] = {THREADS, 1, 0};
extern "C" __constant__ int softmax_launch[3] = {THREADS, 1, THREADS / 32 * int(sizeof(float))};
extern "C" __constant__ int weigh_launch[3] = {D, 1, 0};

// ANCHOR: scores
// S = scale · Q Kᵀ, (n_q, n_k). A thread computes every THREADS-th score of the row.
extern "C" __global__ void __launch_bounds__(THREADS)
scores(const float* q, const float* k, float* s, int n_q, int n_k, float scale) {
    const int i = blockIdx.x, head = blockIdx.y;
    const float* q_i = head_of(q, head, n_q) + size_t(i) * D;
    k = head_of(k, head / GROUP, n_k);
    float* s_i = s + (size_t(head) * n_q + i) * n_k;
    for (int j = threadIdx.x; j < n_k; j += THREADS) {
        const float* k_j = k + size_t(j) * D;
        float dot = 0;
        for (int c = 0; c < D; ++c) dot += q_i[c] * k_j[c];
        s_i[j] = sees(i, j, n_q, n_k) ? changed(scale * dot, head, i + n_k - n_q - j)
                                      : MINUS_INFINITY;
    }
}
// ANCHOR_END: scores

// ANCHOR: over_block
// The sum or the largest of `x` over the block, by `combine` of two and `of_warp` of a warp.
template <typename Combine, typename OfWarp>
__device__ float over_block(float x, Combine combine, OfWarp of_warp) {
    float* of_warps = shared_memory<float[THREADS / 32]>();
    x = of_warp(x);
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = x;
    __syncthreads();
    x = of_warps[0];
    for (int warp = 1; warp < THREADS / 32; ++warp) x = combine(x, of_warps[warp]);
    __syncthreads(); // before the next call overwrites what somebody still reads
    return x;
}
// ANCHOR_END: over_block

// ANCHOR: softmax
// Softmax of every row of S, in place, and its log-sum-exp. The row is read three times and
// written twice.
extern "C" __global__ void __launch_bounds__(THREADS)
softmax(float* s, float* lse, int n_q, int n_k) {
    const int i = blockIdx.x, head = blockIdx.y;
    float* s_i = s + (size_t(head) * n_q + i) * n_k;

    float m = MINUS_INFINITY;
    for (int j = threadIdx.x; j < n_k; j += THREADS) m = fmaxf(m, s_i[j]);
    m = over_block(m, [](float a, float b) { return fmaxf(a, b); }, max_of_lanes<32>);
    const float shift = m == MINUS_INFINITY ? 0 : m; // a row that sees no key

    float sum = 0;
    for (int j = threadIdx.x; j < n_k; j += THREADS) {
        s_i[j] = exp2f(LOG2_E * (s_i[j] - shift));
        sum += s_i[j];
    }
    sum = over_block(sum, [](float a, float b) { return a + b; }, sum_of_lanes<32>);

    const float inverse = sum > 0 ? 1 / sum : 0;
    for (int j = threadIdx.x; j < n_k; j += THREADS) s_i[j] *= inverse;
    if (threadIdx.x == 0) lse[size_t(head) * n_q + i] = m + LN_2 * log2f(sum);
}
// ANCHOR_END: softmax

// ANCHOR: weigh
// O = A V, (n_q, D). A thread computes one entry of the row.
extern "C" __global__ void __launch_bounds__(D)
weigh(const float* a, const float* v, float* output, int n_q, int n_k) {
    const int i = blockIdx.x, head = blockIdx.y, c = threadIdx.x;
    const float* a_i = a + (size_t(head) * n_q + i) * n_k;
    const float* v_c = head_of(v, head / GROUP, n_k) + c;
    float sum = 0;
    for (int j = 0; j < keys_seen_by(i, n_q, n_k); ++j) sum += a_i[j] * v_c[size_t(j) * D];
    head_of(output, head, n_q)[size_t(i) * D + c] = sum;
}
// ANCHOR_END: weigh
