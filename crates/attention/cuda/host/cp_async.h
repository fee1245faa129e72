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

// Writes 16 bytes as four words: of a memset of constant size the race detector would see nothing.
inline void write_16(void* to, const void* from) {
    typedef unsigned __attribute__((may_alias)) Word;
    for (int i = 0; i < 4; ++i) static_cast<Word*>(to)[i] = static_cast<const Word*>(from)[i];
}

} // namespace host

inline void cp_async_16(void* shared, const void* global, int bytes_valid) {
    if (uintptr_t(shared) % 16 || uintptr_t(global) % 16 || bytes_valid < 0 || bytes_valid > 16) {
        std::fprintf(stderr, "error: cp_async_16(%p, %p, %d): not 16 aligned bytes\n", shared,
                     global, bytes_valid);
        std::fflush(stderr);
        std::_Exit(3);
    }
    const unsigned lost[4] = {~0u, ~0u, ~0u, ~0u}; // not numbers
    host::write_16(shared, lost);
    host::copies_of_thread().under_way.push_back({shared, global, bytes_valid});
}

inline void cp_async_wait_all() {
    auto& under_way = host::copies_of_thread().under_way;
    for (const host::Copy& copy : under_way) {
        unsigned brought[4] = {};
        if (copy.bytes_valid > 0) std::memcpy(brought, copy.global, copy.bytes_valid);
        host::write_16(copy.shared, brought);
    }
    under_way.clear();
}
