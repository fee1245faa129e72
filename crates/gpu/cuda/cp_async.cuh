// Copies from slow memory to shared memory that need no register and run while the threads compute,
// one small function an instruction. From compute capability 8.0 on. The names of PTX are kept.
#pragma once

#ifdef __CUDACC__

// What PTX calls an address in shared memory: 32 bits, zero where the block's part begins.
using SharedAddress = unsigned;

__device__ inline SharedAddress shared_address(const void* pointer) {
    return static_cast<SharedAddress>(__cvta_generic_to_shared(pointer));
}

// Sends 16 bytes from global to shared memory on their way, past the registers; the thread goes on.
// Only the first `bytes_valid` of them are read, the others become zeros.
__device__ inline void cp_async_16(void* shared, const void* global, int bytes_valid) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" //
                 ::"r"(shared_address(shared)), "l"(global), "r"(bytes_valid) : "memory");
}

// What the thread sent since its last commit becomes a group. It may be empty.
__device__ inline void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most `pending` of the thread's latest groups are still under way. What other
// threads sent is seen only after a barrier that follows their own wait.
template <int pending> __device__ void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

#else
#include "host/cp_async.h"
#endif
