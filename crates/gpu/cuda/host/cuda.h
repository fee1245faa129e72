// CUDA's words for a C++ compiler: what a kernel needs so that it runs, unmodified, on a CPU.
//
// One block at a time, one fiber per CUDA thread. A fiber runs until it waits for others: at a
// barrier, or where a warp exchanges values. `fibers.cpp` has the machine; this is its vocabulary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <math.h> // exp2f, fmaxf and the others, without a namespace as in CUDA

#define __global__
#define __device__
#define __constant__
#define __shared__
#define __grid_constant__
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)

struct dim3 {
    unsigned x = 1, y = 1, z = 1;
};
// Of the thread that runs; set at every switch of fibers.
extern dim3 threadIdx, blockIdx, blockDim, gridDim;

struct __align__(16) float4 { float x, y, z, w; };
struct __align__(16) uint4 { unsigned x, y, z, w; };
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }

extern char memory[]; // the block's shared memory

// What PTX calls an address in it: 32 bits, zero where the block's part begins.
using SharedAddress = unsigned;
inline SharedAddress shared_address(const void* pointer) {
    return SharedAddress(static_cast<const char*>(pointer) - memory);
}

namespace host {

inline char* at_address(SharedAddress address) { return memory + address; }

// ---- what `fibers.cpp` offers -----------------------------------------------------------------

// Ends the program: the kernel does what no GPU allows, or asks for what this machine doesn't have.
[[noreturn]] void fail(const char* what);
// Waits until all threads of the block are at this line.
void block_barrier(int line);
// Waits until all 32 threads of the warp are here; what they wrote before is seen after.
void warp_barrier();
// A barrier of `threads` threads, known by its number (PTX: bar.sync, bar.arrive).
void named_barrier(int number, int threads, bool wait);
// Every thread of the caller's group of `lanes` (32: a warp, 128: a warpgroup) gives `bytes`; the
// result is the table of all of them, valid until the thread's next call. Orders no memory, and is
// read by `copy`, which the race detector does not see: a shuffle goes through no memory.
const char* exchange(const void* mine, size_t bytes, int lanes);
void copy(void* to, const void* from, size_t bytes);
// Lets others run until `ready(of)`.
void wait_until(bool (*ready)(const void* of), const void* of, const char* what);
// What was written before `release(tag)` is seen after an `acquire(tag)` that follows it. Only the
// race detector needs to be told: fibers run one at a time.
void release(void* tag);
void acquire(void* tag);

// Runs one grid. `kernel(arguments)` is called once for each thread.
struct Launch {
    dim3 grid;
    int threads;
    int shared_bytes;
};
void run(const Launch& launch, void (*kernel)(const void* arguments), const void* arguments);

// Counts the blocks that have begun, over all launches.
extern unsigned block_number;
// The line of the `__syncthreads()` that is left out, to see whether anybody notices; 0: none.
extern int missing_barrier;
// The seed of the order in which the threads of a block run; 0: in the order of their numbers.
extern unsigned seed;

// ---- shuffles ---------------------------------------------------------------------------------

template <typename T> T from_lane(T value, unsigned lane) {
    const char* all = exchange(&value, sizeof(T), 32);
    T result;
    copy(&result, all + lane % 32 * sizeof(T), sizeof(T));
    return result;
}

inline unsigned lane() { return threadIdx.x % 32; }

} // namespace host

// Every barrier is known by its line, so that one can be left out.
#define __syncthreads() ::host::block_barrier(__LINE__)
inline void __syncwarp(unsigned = ~0u) { ::host::warp_barrier(); }

template <typename T> T __shfl_sync(unsigned, T value, int lane) {
    return host::from_lane(value, lane);
}
template <typename T> T __shfl_xor_sync(unsigned, T value, int mask) {
    return host::from_lane(value, host::lane() ^ mask);
}
inline int __any_sync(unsigned, int mine) {
    const char* all = host::exchange(&mine, sizeof mine, 32);
    int of_lanes[32], any = 0;
    host::copy(of_lanes, all, sizeof of_lanes);
    for (int of_lane : of_lanes) any |= of_lane != 0;
    return any;
}
