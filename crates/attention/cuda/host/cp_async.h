// `cp_async.cuh` on a CPU, as PTX ISA 9.7 defines its instructions.
//
// A real copy arrives at some time between its instruction and the wait that covers its group. Here
// what it overwrites is lost at once, and what it brings arrives at the latest moment: who reads
// without such a wait reads NaN. The bytes are written by the thread itself as it waits, which is
// what the race detector has to see: other threads may read them after a barrier that follows the
// wait.
#pragma once

#include <utility>
#include <vector>

// Where the block's shared memory is in that of the CPU; as PTX counts, it begins at zero.
extern char memory[];
using SharedAddress = uint32_t;

inline SharedAddress shared_address(const void* pointer) {
    return SharedAddress(static_cast<const char*>(pointer) - memory);
}

namespace host {

struct Copy {
    char* to;
    const char* from;
    int bytes_valid;
};

// Of one thread: the copies since its last commit, and the groups that are under way, oldest first.
struct Copies {
    unsigned block = 0;
    std::vector<Copy> uncommitted;
    std::vector<std::vector<Copy>> groups;

    // A thread that leaves with copies under way leaves them to arrive wherever somebody else has
    // begun to write. Found out when the thread's next block begins, or the program ends.
    void must_have_arrived() const {
        bool none = uncommitted.empty();
        for (const auto& group : groups) none = none && group.empty();
        if (!none) fail("cp.async: a thread has left, and nobody waited for its copies");
    }
    ~Copies() { must_have_arrived(); }
};

// The running thread's.
inline Copies& copies() {
    static Copies of_threads[1024];
    Copies& mine = of_threads[threadIdx.x];
    if (mine.block != block_number) {
        mine.must_have_arrived();
        mine.groups.clear();
        mine.block = block_number;
    }
    return mine;
}

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

inline void cp_async_commit() {
    host::Copies& mine = host::copies();
    mine.groups.push_back(std::move(mine.uncommitted));
    mine.uncommitted.clear();
}

template <int pending> void cp_async_wait() {
    host::Copies& mine = host::copies();
    while (mine.groups.size() > pending) {
        for (const host::Copy& copy : mine.groups.front()) host::arrive(copy);
        mine.groups.erase(mine.groups.begin());
    }
}
