// `cp_async.cuh` on a CPU. A copy can happen at any time between its start and the wait: what it
// overwrites is lost at the start, and what it brings is there at the wait.
#pragma once

#include "cuda.h"

#include <cstdio>
#include <cstdlib>
#include <vector>

namespace host {

struct Copy {
    void* shared;
    const void* global;
    int bytes_valid;
};

// What a thread has begun, and in which block: a new block begins with nothing under way.
struct Copies {
    std::vector<Copy> under_way;
    dim3 block;
};

inline Copies& copies_of_thread() {
    static Copies of_threads[1024];
    Copies& copies = of_threads[threadIdx.x];
    if (copies.block.x != blockIdx.x || copies.block.y != blockIdx.y) copies.under_way.clear();
    copies.block = blockIdx;
    return copies;
}

} // namespace host

inline void cp_async_16(void* shared, const void* global, int bytes_valid) {
    if (uintptr_t(shared) % 16 || uintptr_t(global) % 16 || bytes_valid < 0 || bytes_valid > 16) {
        std::fprintf(stderr, "error: cp_async_16(%p, %p, %d): not 16 aligned bytes\n", shared, global,
                     bytes_valid);
        std::fflush(stderr);
        std::_Exit(3);
    }
    std::memset(shared, 0xff, 16); // not a number
    host::copies_of_thread().under_way.push_back({shared, global, bytes_valid});
}

inline void cp_async_wait_all() {
    auto& under_way = host::copies_of_thread().under_way;
    for (const host::Copy& copy : under_way) {
        std::memset(copy.shared, 0, 16);
        if (copy.bytes_valid > 0) std::memcpy(copy.shared, copy.global, copy.bytes_valid);
    }
    under_way.clear();
}
