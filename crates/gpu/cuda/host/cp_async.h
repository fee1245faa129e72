// `cp_async.cuh` on a CPU, as PTX ISA 9.7 defines its instructions.
//
// A real copy arrives at some time between its instruction and the wait that covers its group. Here
// what it overwrites is lost at once, and what it brings arrives at the latest moment: who reads
// without such a wait reads NaN. The bytes are written by the thread itself as it waits, which is
// what the race detector has to see: other threads may read them after a barrier that follows the
// wait.
#pragma once

#include "pending.h"

namespace host {

struct Copy {
    static constexpr const char* FORGOTTEN =
        "cp.async: a thread has left, and its copies were not waited for";
    char* to;
    const char* from;
    int bytes_valid;
};

inline Pending<Copy>& copies() { return of_thread<Pending<Copy>>(); }

// Writes 16 bytes as four words: of a memset of constant size the race detector would see nothing.
inline void write_16(void* to, const void* from) {
    typedef unsigned __attribute__((may_alias)) Word;
    for (int i = 0; i < 4; ++i) static_cast<Word*>(to)[i] = static_cast<const Word*>(from)[i];
}

inline void arrive(const Copy& copy) {
    unsigned brought[4] = {};
    if (copy.bytes_valid > 0) std::memcpy(brought, copy.from, copy.bytes_valid);
    write_16(copy.to, brought);
}

} // namespace host

inline void cp_async_16(void* shared, const void* global, int bytes_valid) {
    if (uintptr_t(shared) % 16 != 0 || uintptr_t(global) % 16 != 0)
        host::fail("cp.async: 16 bytes begin at a multiple of 16");
    if (bytes_valid < 0 || bytes_valid > 16) host::fail("cp.async: 0 to 16 bytes are valid");
    const unsigned lost[4] = {~0u, ~0u, ~0u, ~0u}; // not numbers
    host::write_16(shared, lost);
    host::copies().uncommitted.push_back(
        {static_cast<char*>(shared), static_cast<const char*>(global), bytes_valid});
}

inline void cp_async_commit() { host::copies().commit(); }

template <int pending> void cp_async_wait() { host::copies().wait(pending, host::arrive); }
