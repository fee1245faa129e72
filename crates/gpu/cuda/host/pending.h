// What a thread asked for and has not yet waited for: copies of cp.async, products of wgmma. Both
// are committed in groups, and a wait names how many of the latest groups it leaves under way.
#pragma once

#include "cuda.h"

#include <utility>
#include <vector>

namespace host {

// `Work` says in `FORGOTTEN` what it means that a thread leaves before its work was done.
template <typename Work> struct Pending {
    unsigned block = 0;
    std::vector<Work> uncommitted;
    std::vector<std::vector<Work>> groups; // oldest first

    void commit() {
        groups.push_back(std::move(uncommitted));
        uncommitted.clear();
    }

    // Does the work of all groups but the latest `kept`, in order.
    template <typename Do> void wait(int kept, Do perform) {
        while (int(groups.size()) > kept) {
            for (const Work& work : groups.front()) perform(work);
            groups.erase(groups.begin());
        }
    }

    ~Pending() { must_be_done(); }
    void must_be_done() const {
        bool done = uncommitted.empty();
        for (const auto& group : groups) done = done && group.empty();
        if (!done) fail(Work::FORGOTTEN);
    }
};

// What the running thread has pending. What a thread leaves undone is found out when the thread of
// the same number in the next block asks for something, or the program ends.
template <typename Pending> Pending& of_thread() {
    static Pending of_threads[1024];
    Pending& mine = of_threads[threadIdx.x];
    if (mine.block != block_number) {
        mine.must_be_done();
        mine = Pending();
        mine.block = block_number;
    }
    return mine;
}

} // namespace host
