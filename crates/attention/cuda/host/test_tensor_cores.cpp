// The emulated instructions against plain loops: exit code 0 if they agree. Layouts are written
// here as the PTX ISA writes them, element by element (9.7.14.5: a_i, b_i, c_i of lane 4 · g + t).

#include "cuda.h"

#include "../tensor_cores.cuh"

#include <cstdio>

namespace {

int failures = 0;

// Of what a warp computes, each lane checks its own part.
void expect(float got, float wanted, const char* what) {
    if (got == wanted) return;
    if (failures++ < 10)
        std::fprintf(stderr, "%s, lane %u: %g, not %g\n", what, threadIdx.x, got, wanted);
}

// Small whole numbers: exact in bf16, and so are their sums in floats.
int entry(int row, int column, int seed) { return (row * 7 + column * 13 + seed * 5) % 17 - 8; }
Bf16 bf16(int whole) { return host::to_bf16(float(whole)); }

void test_mma(const void*) {
    const unsigned g = threadIdx.x / 4, t = threadIdx.x % 4;
    Bf16 a[8], b[4];
    float c[4];
    for (unsigned i = 0; i < 8; ++i) {
        const unsigned row = i < 2 || (4 <= i && i < 6) ? g : g + 8;
        const unsigned column = t * 2 + (i & 1) + (i >= 4 ? 8 : 0);
        a[i] = bf16(entry(row, column, 1));
    }
    for (unsigned i = 0; i < 4; ++i) b[i] = bf16(entry(t * 2 + (i & 1) + (i >= 2 ? 8 : 0), g, 2));
    for (unsigned i = 0; i < 4; ++i) c[i] = entry(i < 2 ? g : g + 8, t * 2 + (i & 1), 3);

    unsigned a_registers[4], b_registers[2];
    std::memcpy(a_registers, a, sizeof a);
    std::memcpy(b_registers, b, sizeof b);
    mma_bf16(c, a_registers, b_registers[0], b_registers[1]);

    for (unsigned i = 0; i < 4; ++i) {
        const int row = i < 2 ? g : g + 8, column = t * 2 + (i & 1);
        float wanted = entry(row, column, 3);
        for (int k = 0; k < 16; ++k) wanted += entry(row, k, 1) * entry(k, column, 2);
        expect(c[i], wanted, "mma");
    }
}

// Four 8 × 8 matrices in shared memory, side by side in rows of 64 bytes, which are 80 bytes apart
// so that no two rows of a matrix are in the same banks.
void test_ldmatrix(const void*) {
    constexpr int STRIDE = 40;
    auto* tile = reinterpret_cast<Bf16*>(memory);
    for (int place = threadIdx.x; place < 8 * 32; place += 32)
        tile[place / 32 * STRIDE + place % 32] = bf16(entry(place / 32, place % 32, 4));
    __syncwarp();
    const auto row = shared_address(tile + threadIdx.x % 8 * STRIDE + threadIdx.x / 8 * 8);
    unsigned plain[4], transposed[4];
    ldmatrix_x4(plain, row);
    ldmatrix_x4_trans(transposed, row);
    const int g = threadIdx.x / 4, t = threadIdx.x % 4;
    for (int matrix = 0; matrix < 4; ++matrix)
        for (int half = 0; half < 2; ++half) {
            const int other = 2 * t + half;
            const auto of = [&](unsigned x) { return host::from_bf16(Bf16(x >> 16 * half)); };
            expect(of(plain[matrix]), entry(g, 8 * matrix + other, 4), "ldmatrix");
            expect(of(transposed[matrix]), entry(other, 8 * matrix + g, 4), "ldmatrix, transposed");
        }
}

// Copies arrive with the wait for their group, not before, and with zeros for what is not valid.
void test_cp_async(const void*) {
    alignas(16) static Bf16 global[32 * 8];
    auto* tile = reinterpret_cast<Bf16*>(memory);
    const int lane = threadIdx.x;
    Bf16 *mine = tile + 8 * lane, *later = tile + 8 * (32 + lane);
    for (int i = 0; i < 8; ++i) global[8 * lane + i] = bf16(entry(lane, i, 5));
    cp_async_16(mine, global + 8 * lane, 10);
    cp_async_commit();
    cp_async_16(later, global + 8 * lane, 16);
    cp_async_commit();
    expect(mine[0], 0xffff, "cp.async before its wait");
    cp_async_wait<1>();
    for (int i = 0; i < 8; ++i)
        expect(host::from_bf16(mine[i]), i < 5 ? entry(lane, i, 5) : 0, "cp.async");
    expect(later[0], 0xffff, "cp.async of a later group");
    cp_async_commit(); // an empty group is one, too
    cp_async_wait<1>();
    for (int i = 0; i < 8; ++i)
        expect(host::from_bf16(later[i]), entry(lane, i, 5), "cp.async, second group");
    cp_async_16(mine, global + 8 * lane, 0);
    cp_async_wait<0>(); // waits for groups; this copy is of none
    expect(mine[0], 0xffff, "cp.async without a commit");
    cp_async_commit();
    cp_async_wait<0>();
    expect(mine[0], 0, "cp.async of nothing but zeros");
}

// 1 + 2⁻⁷ is the next bf16 after 1.
void test_pack(const void*) {
    const float step = 0.0078125f;
    const auto expect_pair = [](unsigned pair, unsigned low, unsigned high, const char* what) {
        expect(pair & 0xffff, low, what);
        expect(pair >> 16, high, what);
    };
    expect_pair(pack_bf16(1 + step / 2, 1 + 1.5f * step), 0x3f80, 0x3f82, "ties to even");
    expect_pair(pack_bf16(1 + 0.49f * step, 1 + 0.51f * step), 0x3f80, 0x3f81, "to the nearest");
    expect_pair(pack_bf16(-2, INFINITY), 0xc000, 0x7f80, "sign and infinity");
}

} // namespace

int main() {
    const host::Launch warp{{1, 1, 1}, 32, 4096};
    for (auto test : {test_mma, test_ldmatrix, test_cp_async, test_pack})
        host::run(warp, test, nullptr);
    if (failures > 0) std::fprintf(stderr, "%d failures\n", failures);
    return failures > 0;
}
