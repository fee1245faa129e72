// What all kernels share.
//
// A kernel is compiled for one head dimension, D, and for full or causal attention, CAUSAL. What
// lies in the GPU's memory is laid out as (heads, n, D): one row a token, head after head.
#pragma once

// ANCHOR: constants
// exp(x) is exp2(LOG2_E · x), and exp2 is one instruction.
constexpr float LOG2_E = 1.4426950408889634f;
constexpr float LN_2 = 0.6931471805599453f;
#define MINUS_INFINITY (-1.0f / 0.0f) // the run-time compiler knows no INFINITY
// ANCHOR_END: constants

#ifndef GROUP // how many heads of queries share a head of keys and values
#define GROUP 1
#endif

// ANCHOR: rule
// What is done to a score before the softmax, also if it is in powers of two, and the slope of it,
// for a key that stands `distance` tokens before the query. A rule for scores is written as a file
// of its own when the kernel is compiled.
#ifdef SCORE_RULE
#include SCORE_RULE
constexpr bool HAS_RULE = true;
__device__ inline float changed_power(float score, int head, int distance) {
    return LOG2_E * changed(LN_2 * score, head, distance);
}
#else
constexpr bool HAS_RULE = false;
__device__ inline float changed(float score, int head, int distance) { return score; }
__device__ inline float changed_power(float score, int head, int distance) { return score; }
__device__ inline float slope_of_change(float score, int head, int distance) { return 1; }
#endif
// ANCHOR_END: rule

// Head `head` of a tensor (heads, n, D).
template <typename T> __device__ T* head_of(T* tensor, int head, int n) {
    return tensor + size_t(head) * n * D;
}

// ANCHOR: visible
// How many keys query `i` sees: all, or those up to its own place, where the last query stands
// beside the last key. (A window hides some of these.)
__device__ inline int keys_seen_by(int i, int n_q, int n_k) {
    return CAUSAL ? max(0, min(n_k, i + 1 + n_k - n_q)) : n_k;
}
// ANCHOR_END: visible

// What a mask hides beside the future. It is written as a file of its own when the kernel is
// compiled, and defines HAS_MASK; how many keys at the beginning are seen by all later queries; of
// the others, the first that query `i` sees; and the first query to which key `j` is hidden again.
// Both never shrink as their argument grows.
#ifdef MASK
#include MASK
#else
constexpr bool HAS_MASK = false;
constexpr int SINKS = 0;
__device__ inline int first_key_of(int i, int n_q, int n_k) { return 0; }
__device__ inline int end_of_queries(int j, int n_q, int n_k) { return n_q; }
#endif

// Does query `i` see key `j`?
__device__ inline bool sees(int i, int j, int n_q, int n_k) {
    return j < keys_seen_by(i, n_q, n_k) && (j < SINKS || j >= first_key_of(i, n_q, n_k));
}

// The tile of `rows` keys at `first`, or the next one of which queries from `i` on see something.
__device__ inline int next_tile(int first, int rows, int i, int n_q, int n_k) {
    return first < SINKS ? first : max(first, first_key_of(i, n_q, n_k) / rows * rows);
}

// The first query that sees key `first`, and the first after those that see any key from there to
// `last`: the other way round of `keys_seen_by` and `first_key_of`.
__device__ inline int first_to_see(int first, int n_q, int n_k) {
    return CAUSAL ? max(0, first + n_q - n_k) : 0;
}
__device__ inline int end_of_seeing(int first, int last, int n_q, int n_k) {
    return first < SINKS ? n_q : end_of_queries(min(last, n_k - 1), n_q, n_k);
}

// The block's dynamic shared memory, seen as the struct that the kernel lays out.
template <typename Shared> __device__ Shared& shared_memory() {
    extern __shared__ __align__(1024) char memory[];
    return *reinterpret_cast<Shared*>(memory);
}

// ANCHOR: lanes
// The largest, and the sum, over `lanes` neighbouring lanes of a warp; every one of them gets it.
// With a `stride`, over lanes that lie so far apart.
template <int lanes, int stride = 1> __device__ float max_of_lanes(float x) {
    for (int step = lanes / 2; step > 0; step /= 2)
        x = fmaxf(x, __shfl_xor_sync(~0u, x, step * stride));
    return x;
}

template <int lanes, int stride = 1> __device__ float sum_of_lanes(float x) {
    for (int step = lanes / 2; step > 0; step /= 2) x += __shfl_xor_sync(~0u, x, step * stride);
    return x;
}
// ANCHOR_END: lanes
