// Copies from slow memory to shared memory that need no register and run while the threads compute
// (sm_80 and later). One function an instruction.
#pragma once

#ifdef __CUDACC__

// ANCHOR: cp_async
// Begins to copy 16 bytes: the first `bytes_valid` (0 to 16) from `global`, zeros for the others.
// Both addresses are multiples of 16; with no valid byte nothing is read.
__device__ inline void cp_async_16(void* shared, const void* global, int bytes_valid) {
    const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"(to), "l"(global), "r"(bytes_valid) : "memory");
}

// Waits until all copies that this thread began are done. The others see them after a barrier.
__device__ inline void cp_async_wait_all() { asm volatile("cp.async.wait_all;" ::: "memory"); }
// ANCHOR_END: cp_async

#else
#include "host/cp_async.h"
#endif
