// What the programs that run a kernel on a CPU share: numbers in, numbers out, one launch.
#pragma once

#include "cuda.h"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

struct Options {
    int heads = 1, n_q = 1, n_k = 1;
};

// Arguments: heads n_q n_k [seed [line of the barrier to leave out]]
inline Options options(int count, char** words) {
    if (count < 4) {
        std::fprintf(stderr, "usage: %s HEADS N_Q N_K [SEED [MISSING_BARRIER]] < in > out\n", words[0]);
        std::exit(2);
    }
    host::seed = count > 4 ? std::strtoul(words[4], nullptr, 10) : 0;
    host::missing_barrier = count > 5 ? std::atoi(words[5]) : 0;
    return {std::atoi(words[1]), std::atoi(words[2]), std::atoi(words[3])};
}

// A piece of global memory of exactly this size: beyond it, the address sanitizer watches.
template <typename T> struct Buffer {
    size_t count;
    T* data;

    // Not a number anywhere.
    explicit Buffer(size_t count) : count(count), data(static_cast<T*>(std::malloc(count * sizeof(T)))) {
        std::memset(data, 0xff, count * sizeof(T));
    }
    ~Buffer() { std::free(data); }
    Buffer(const Buffer&) = delete;
};

// The next numbers of the standard input.
template <typename T> struct Input : Buffer<T> {
    explicit Input(size_t count) : Buffer<T>(count) {
        if (std::fread(this->data, sizeof(T), count, stdin) != count) {
            std::fprintf(stderr, "error: the input is too short\n");
            std::exit(2);
        }
    }
};

template <typename T> void write(const Buffer<T>& buffer) {
    std::fwrite(buffer.data, sizeof(T), buffer.count, stdout);
}

// Launches `kernel(arguments...)` over `rows` rows of every head, as its `launch` says.
template <typename Kernel, typename... Arguments>
void launch(Kernel kernel, const int (&launch)[3], int rows, int heads, Arguments... arguments) {
    auto call = [=] { kernel(arguments...); };
    const dim3 grid{unsigned((rows + launch[1] - 1) / launch[1]), unsigned(heads), 1};
    host::run({grid, launch[0], launch[2]},
              [](const void* of) { (*static_cast<const decltype(call)*>(of))(); }, &call);
}
