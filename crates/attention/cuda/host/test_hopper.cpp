// Is the imitation of Hopper's instructions right? Copies, barriers and products against plain
// loops. Says nothing and exits with 0 if so.

#include "run.h"

#include "../hopper.cuh"

#include <cmath>

namespace {

constexpr int COLUMNS = 128, ROWS = 100, HEADS = 2, FIRST = 30; // 70 rows of the tile exist
constexpr int TILE = 128;

int failures = 0;

void expect(bool holds, const char* what) {
    if (!holds && ++failures <= 10) std::fprintf(stderr, "error: %s\n", what);
}

struct Shared {
    Bf16 part[2][TILE][64]; // columns 0–63 and 64–127 of the tile
    Barrier full, counted;
};

struct Test {
    TensorMap map;
    float scores[64][TILE], wide[64][128], narrow[64][64];
};
Test* test;

float number(Bf16 bits) { return host::from_bf16(bits); }

// Entry (row, column) of the tile, as the tensor has it.
float entry(int head, int row, int column) {
    if (FIRST + row >= ROWS) return 0;
    return number(test->map.data[(size_t(head) * ROWS + FIRST + row) * COLUMNS + column]);
}

// The left factor that is given in registers; small whole numbers, exact in bf16.
float left(int row, int k) { return float((row * 7 + k * 3) % 11 - 5); }

// What the thread has of a product, to its place: row g (+ 8), columns 2t and 2t + 1 of every
// eight.
template <int n> void put(float (&matrix)[64][n], const float (&d)[n / 2]) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int i = 0; i < n / 2; ++i)
        matrix[16 * warp + lane / 4 + 8 * (i / 2 % 2)][i / 4 * 8 + lane % 4 * 2 + i % 2] = d[i];
}

void kernel(const void*) {
    Shared& shared = *reinterpret_cast<Shared*>(memory);
    if (threadIdx.x == 0) {
        mbarrier_init(shared.full, 1);
        mbarrier_init(shared.counted, 128);
        mbarrier_init_fence();
    }
    __syncthreads();
    mbarrier_wait(shared.counted, 1); // the phase before the first is over
    if (threadIdx.x == 0) {
        mbarrier_arrive_expecting(shared.full, sizeof shared.part);
        for (int c = 0; c < 2; ++c)
            tma_load(shared.part[c], test->map, shared.full, 64 * c, FIRST, 1);
    }
    mbarrier_wait(shared.full, 0);

    // Chunk c of row r stands at place c ^ (r mod 8).
    for (int row = threadIdx.x; row < TILE; row += 128)
        for (int column = 0; column < COLUMNS; ++column) {
            const int place = (column % 64 / 8 ^ row % 8) * 8 + column % 8;
            expect(number(shared.part[column / 64][row][place]) == entry(1, row, column),
                   "a copy puts an entry elsewhere");
        }

    // The first 64 rows times all rows, over the columns 80 to 111: two steps, in the second
    // part.
    float scores[64], wide[64] = {}, narrow[32] = {};
    wgmma_fence();
    for (int step = 0; step < 2; ++step) {
        const auto of = advance(descriptor(shared.part[1]), 32 + 32 * step);
        wgmma(scores, of, of, step > 0);
    }
    wgmma_commit();

    // A factor in registers times rows 16 to 31 and 32 to 47: two steps, all columns, or the
    // first 64.
    unsigned a[2][4];
    const int lane = threadIdx.x % 32, first = threadIdx.x / 32 * 16 + lane / 4;
    for (int step = 0; step < 2; ++step)
        for (int i = 0; i < 4; ++i) {
            const int row = first + i % 2 * 8, k = 16 * step + i / 2 * 8 + lane % 4 * 2;
            a[step][i] = pack_bf16(left(row, k), left(row, k + 1));
        }
    const auto tile = descriptor(shared.part[0], sizeof shared.part[0]);
    const auto values = advance(tile, 16 * SWIZZLED_ROW);
    wgmma_fence();
    for (int step = 0; step < 2; ++step) {
        wgmma(wide, a[step], advance(values, step * 16 * SWIZZLED_ROW));
        wgmma(narrow, a[step], advance(values, step * 16 * SWIZZLED_ROW));
    }
    wgmma_commit();
    expect(std::isnan(scores[0]) && std::isnan(wide[63]), "accumulators are there before the wait");
    wgmma_wait<1>();
    expect(!std::isnan(scores[0]) && std::isnan(wide[63]), "a wait for one group of two");
    put(test->scores, scores);
    wgmma_wait<0>();
    put(test->wide, wide);
    put(test->narrow, narrow);

    // A barrier of 128 arrivals: no thread passes before the last, and its phases follow each other.
    static int arrived;
    arrived = 0;
    __syncthreads();
    for (int phase = 0; phase < 3; ++phase) {
        ++arrived;
        mbarrier_arrive(shared.counted);
        mbarrier_wait(shared.counted, phase % 2);
        expect(arrived == 128 * (phase + 1), "an mbarrier lets somebody pass too early");
        __syncthreads();
    }
}

// `term(row, column, k)`, summed over 32 values of k, is what the matrix should hold.
template <int n, typename Term>
void compare(const float (&matrix)[64][n], Term term, const char* what) {
    for (int row = 0; row < 64; ++row)
        for (int column = 0; column < n; ++column) {
            double sum = 0, size = 0;
            for (int k = 0; k < 32; ++k) {
                const double x = term(row, column, k);
                sum += x, size += std::fabs(x);
            }
            expect(std::fabs(matrix[row][column] - sum) <= 1e-6 * size, what);
        }
}

} // namespace

int main() {
    Buffer<Bf16> tensor(size_t(HEADS) * ROWS * COLUMNS);
    unsigned state = 1;
    for (size_t i = 0; i < tensor.count; ++i) {
        state = state * 1664525u + 1013904223u;
        tensor.data[i] = Bf16(host::to_bf16(float(int(state >> 8)) / (1 << 23) - 1));
    }
    const long long row = COLUMNS * sizeof(Bf16);
    for (unsigned seed = 0; seed < 4; ++seed) {
        Test here = {};
        here.map = {tensor.data, {COLUMNS, ROWS, HEADS}, {row, ROWS * row}, {64, TILE}};
        test = &here;
        host::seed = seed;
        gridDim = {1, 1, 1};
        host::run({{1, 1, 1}, 128, int(sizeof(Shared))}, kernel, nullptr);
        const auto score = [](int i, int j, int k) {
            return entry(1, i, 80 + k) * entry(1, j, 80 + k);
        };
        compare(here.scores, score, "a product of two factors in shared memory");
        const auto times_values = [](int i, int j, int k) {
            return left(i, k) * entry(1, 16 + k, j);
        };
        compare(here.wide, times_values, "a product of 128 columns with a factor in registers");
        compare(here.narrow, times_values, "a product of 64 columns with a factor in registers");
    }
    return failures > 0;
}
