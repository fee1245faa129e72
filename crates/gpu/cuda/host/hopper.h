// Hopper's instructions on a CPU: the same functions as in hopper.cuh, with what the PTX ISA
// promises and no more. What is asynchronous on the GPU happens here as late as it may, so that a
// wait left out is seen: a copy when somebody waits for its barrier (or, as the seed has it, at
// once: then a tile that is still in use is overwritten), a product when its group is waited for.
// Until then the accumulators are not numbers, and both factors stay where they are, registers
// included.
//
// Shared memory is read and written by ordinary code, which the sanitizers watch. The machine's
// own tables they must not see: fibers run one at a time, and what orders them is told by acquire and
// release.
#pragma once

#include "pending.h"

#include <map>

// Not watched by the race detector.
#define UNWATCHED __attribute__((noinline, no_sanitize("thread")))

namespace host {

inline UNWATCHED void demand(bool holds, const char* otherwise) {
    if (!holds) fail(otherwise);
}

// The address of what 128-byte swizzle puts at `address` (CuTe's Swizzle<3, 4, 3>): bits 4 to 6
// are replaced by their exclusive or with bits 7 to 9.
inline unsigned swizzle_128(unsigned address) { return address ^ ((address >> 7 & 7) << 4); }

// Words that all threads of a group give must be the same in all of them.
inline void same_in_all(unsigned long long word, int lanes, const char* otherwise) {
    const char* all = exchange(&word, sizeof word, lanes);
    for (int lane = 0; lane < lanes; ++lane) {
        unsigned long long other;
        copy(&other, all + lane * sizeof other, sizeof other);
        demand(other == word, otherwise);
    }
}

} // namespace host

// What cuTensorMapEncodeTiled is told, for three dimensions of bf16 with 128-byte swizzle.
struct alignas(64) TensorMap {
    const Bf16* data;
    int sizes[3];         // elements, innermost first
    long long strides[2]; // bytes from one to the next in the second and the third dimension
    int box[2];           // elements; 1 in the third
};

// The map of a tensor (heads, n, D), of which a copy takes 64 columns and `rows` rows at a time.
inline TensorMap tensor_map(const Bf16* data, int heads, int n, int rows) {
    const long long row = D * sizeof(Bf16);
    return {data, {D, n, heads}, {row, n * row}, {64, rows}};
}

// ---- one lane of a warp -----------------------------------------------------------------------

inline bool elect() {
    host::same_in_all(0, 32, "elect() by a part of a warp");
    return host::lane() == host::seed % 32; // which one, the ISA does not say
}

// ---- mbarriers --------------------------------------------------------------------------------

namespace host {

// What the 64 bits of an mbarrier hold here. All of them are set before each block: none is there.
struct __attribute__((may_alias)) Mbarrier {
    unsigned long long arrivals : 20, awaited : 20; // of a phase, and still missing in this one
    unsigned long long phase : 1;                   // its parity
    long long bytes : 22;                           // outstanding: the "tx-count"
    unsigned long long : 1;

    UNWATCHED void end_phase_if_complete() {
        if (awaited > 0 || bytes != 0) return;
        awaited = arrivals;
        phase ^= 1;
    }
    // What had been done by those who arrived in phases of this parity; two addresses of its own.
    UNWATCHED char* tag(unsigned parity) { return reinterpret_cast<char*>(this) + parity; }
};
static_assert(sizeof(Mbarrier) == sizeof(Barrier), "an mbarrier has 64 bits");

// The race detector sees a read of the word, which must come after its initialisation.
inline Mbarrier& mbarrier_of(Barrier& barrier) {
    demand(*static_cast<volatile Barrier*>(&barrier) != ~0ull,
           "an mbarrier is used that was not initialised");
    return reinterpret_cast<Mbarrier&>(barrier);
}

// The block that has mbarriers of which the copy engine does not know.
inline unsigned block_without_fence = 0;

inline UNWATCHED void fence_is_missing(bool missing) {
    block_without_fence = missing ? block_number : 0;
}

UNWATCHED inline void arrive(Mbarrier& mbarrier, int bytes) {
    demand(mbarrier.awaited > 0, "an mbarrier gets more arrivals than it counts");
    demand(mbarrier.bytes + bytes < 1 << 20, "an mbarrier counts up to 2^20 - 1 bytes");
    release(mbarrier.tag(mbarrier.phase));
    mbarrier.bytes += bytes;
    --mbarrier.awaited;
    mbarrier.end_phase_if_complete();
}

UNWATCHED inline void complete(Mbarrier& mbarrier, int bytes) {
    release(mbarrier.tag(mbarrier.phase));
    mbarrier.bytes -= bytes;
    mbarrier.end_phase_if_complete();
}

// ---- bulk copies ------------------------------------------------------------------------------

struct Copy {
    TensorMap map; // or, of `bytes` as they are, only its data
    char* to;
    Mbarrier* mbarrier = nullptr; // while it is under way
    unsigned block;
    int x, y, z;
    int bytes;
    char tag; // what the thread that asked for it had done
};

inline struct Copies {
    Copy all[64];

    ~Copies() {
        for (const Copy& copy : all)
            demand(!copy.mbarrier, "the grid has ended while a copy was under way");
    }
} copies;
inline unsigned copies_asked = 0;

// Writes the box, row by row, 16 bytes at a time, each to its swizzled place.
inline void write_box(const TensorMap& map, char* to, int x, int y, int z) {
    constexpr int IN_CHUNK = 16 / sizeof(Bf16);
    const unsigned begin = shared_address(to);
    for (int row = 0; row < map.box[1]; ++row)
        for (int column = 0; column < map.box[0]; column += IN_CHUNK) {
            Bf16 chunk[IN_CHUNK];
            for (int e = 0; e < IN_CHUNK; ++e) {
                const long long at[3] = {x + column + e, y + row, z};
                bool inside = true;
                for (int i = 0; i < 3; ++i) inside = inside && at[i] >= 0 && at[i] < map.sizes[i];
                const char* from = reinterpret_cast<const char*>(map.data + at[0])
                                   + at[1] * map.strides[0] + at[2] * map.strides[1];
                chunk[e] = inside ? *reinterpret_cast<const Bf16*>(from) : 0;
            }
            const unsigned linear = begin + (row * map.box[0] + column) * sizeof(Bf16);
            std::memcpy(at_address(swizzle_128(linear)), chunk, sizeof chunk);
        }
}

inline UNWATCHED void perform(Copy& wanted) {
    demand(wanted.block == block_number, "a block has ended while a copy into it was under way");
    Mbarrier& mbarrier = *wanted.mbarrier;
    acquire(&wanted.tag);
    if (wanted.map.box[0] > 0) write_box(wanted.map, wanted.to, wanted.x, wanted.y, wanted.z);
    else std::memcpy(wanted.to, wanted.map.data, wanted.bytes);
    wanted.mbarrier = nullptr;
    complete(mbarrier, wanted.bytes);
}

inline UNWATCHED void ask(Copy wanted) {
    demand(block_without_fence != block_number,
           "an mbarrier that the copy engine was not told of by a fence");
    for (Copy& place : copies.all) {
        if (place.mbarrier) continue;
        place = wanted;
        release(&place.tag);
        // Late, or at once, in an order that the seed decides.
        if ((++copies_asked * 2654435761u ^ seed * 40503u) >> 15 & (seed != 0)) perform(place);
        return;
    }
    fail("too many copies under way for this emulator");
}

// What a thread waits for, if it waits for an mbarrier.
struct Awaited {
    Mbarrier* mbarrier;
    unsigned parity;
};

// The scheduler asks. If the phase is not over, the copies into this barrier come now: no later.
inline UNWATCHED bool is_over(const void* of) {
    const auto& awaited = *static_cast<const Awaited*>(of);
    if (awaited.mbarrier->phase != awaited.parity) return true;
    for (Copy& wanted : copies.all)
        if (wanted.mbarrier == awaited.mbarrier) perform(wanted);
    return awaited.mbarrier->phase != awaited.parity;
}

} // namespace host

inline void mbarrier_init(Barrier& barrier, unsigned arrivals) {
    host::demand(arrivals >= 1 && arrivals < 1u << 20,
                 "an mbarrier counts from 1 to 2^20 - 1 arrivals");
    host::demand(shared_address(&barrier) % 8 == 0, "an mbarrier lies on 8 bytes");
    host::demand(barrier == ~0ull, "an mbarrier is initialised twice, or in memory already used");
    reinterpret_cast<host::Mbarrier&>(barrier) = {arrivals, arrivals, 0, 0};
    host::fence_is_missing(true);
}

inline void async_proxy_fence() {} // a copy here sees all that was done before it was asked for
inline void mbarrier_init_fence() { host::fence_is_missing(false); }

inline void mbarrier_arrive(Barrier& barrier) { host::arrive(host::mbarrier_of(barrier), 0); }

inline void mbarrier_arrive_expecting(Barrier& barrier, unsigned bytes) {
    host::arrive(host::mbarrier_of(barrier), bytes);
}

inline void mbarrier_wait(Barrier& barrier, unsigned parity) {
    const host::Awaited awaited = {&host::mbarrier_of(barrier), parity};
    host::wait_until(host::is_over, &awaited, "an mbarrier");
    host::acquire(awaited.mbarrier->tag(parity));
}

inline void tma_load(void* shared, const TensorMap& map, Barrier& barrier, int x, int y, int z) {
    using host::demand;
    demand(map.box[0] * sizeof(Bf16) == 128, "an emulated copy has rows of 128 bytes");
    demand(map.box[1] >= 1 && map.box[1] <= 256, "a box has at most 256 rows");
    demand(map.strides[0] % 16 == 0 && map.strides[1] % 16 == 0, "strides come in 16 bytes");
    demand(shared_address(shared) % 1024 == 0, "the pattern of a swizzled tile begins on 1024 bytes");
    host::ask({map, static_cast<char*>(shared), &host::mbarrier_of(barrier), host::block_number, x, y,
               z, map.box[0] * map.box[1] * int(sizeof(Bf16))});
}

inline void bulk_load(void* shared, const void* from, unsigned bytes, Barrier& barrier) {
    host::demand(shared_address(shared) % 16 == 0 && size_t(from) % 16 == 0 && bytes % 16 == 0,
                 "a bulk copy comes in 16 bytes");
    host::ask({{static_cast<const Bf16*>(from)}, static_cast<char*>(shared),
               &host::mbarrier_of(barrier), host::block_number, 0, 0, 0, int(bytes)});
}

// ---- registers that change hands, and named barriers --------------------------------------------

namespace host {

constexpr int REGISTERS = 64 * 1024;

struct Pool {
    unsigned block = 0;
    int free = 0;          // registers that no thread has
    int held[1024] = {};   // by each thread
};

inline Pool pool;

UNWATCHED inline void open_pool() {
    if (pool.block == block_number) return;
    const int each = min(REGISTERS / int(blockDim.x) / 8 * 8, 248);
    pool.block = block_number;
    pool.free = 0; // what the launch did not hand out belongs to no block
    for (int& held : pool.held) held = each;
}

UNWATCHED inline bool enough_are_free(const void* of) {
    return pool.free >= *static_cast<const int*>(of);
}

inline UNWATCHED void set_registers(int count, bool more) {
    open_pool();
    demand(count >= 24 && count <= 256 && count % 8 == 0, "registers: 24 to 256, in eights");
    const int needed = count - pool.held[threadIdx.x];
    demand(more ? needed >= 0 : needed <= 0, "setmaxnreg in the wrong direction");
    if (needed > 0) wait_until(enough_are_free, &needed, "registers from the pool");
    pool.free -= needed;
    pool.held[threadIdx.x] = count;
}

} // namespace host

template <int count> void keep_registers() {
    host::same_in_all(count, 128, "setmaxnreg differs in a warpgroup");
    host::set_registers(count, false);
}

template <int count> void take_registers() {
    host::same_in_all(count, 128, "setmaxnreg differs in a warpgroup");
    host::set_registers(count, true);
}

inline void named_barrier_sync(int number, int threads) {
    host::named_barrier(number, threads, true);
}
inline void named_barrier_arrive(int number, int threads) {
    host::named_barrier(number, threads, false);
}

// ---- products of a warpgroup --------------------------------------------------------------------

namespace host {

// A product D += A B that was asked for and not yet done.
struct Product {
    static constexpr const char* FORGOTTEN = "a block has ended while products were under way";
    float* d;
    int n;                         // columns of D and B
    bool accumulate;
    const unsigned* a_registers;   // or, if null, a descriptor
    unsigned long long a, b;
    bool b_along_n;                // "MN-major", the transposed factor
};

// What stands in an accumulator meanwhile: a signalling NaN, which arithmetic turns into another.
constexpr unsigned UNDER_WAY = 0x7fa00001;

// Registers that belong to products under way: their values are seen nowhere but here.
struct Accumulator {
    std::vector<float> values;
    int products = 0; // under way
};

struct Warpgroup : Pending<Product> { // what a thread knows of its warpgroup's products
    bool fenced = false;
    std::map<float*, Accumulator> accumulators; // by the address of the first register
};

// A factor in shared memory, as its descriptor says (PTX ISA, "Matrix Descriptor Format" and
// "Canonical Layouts"; T is 8, the number of bf16 in 16 bytes).
struct Factor {
    unsigned start, leading, stride;

    explicit Factor(unsigned long long descriptor) {
        const auto decode = [&](int bit) { return unsigned(descriptor >> bit & 0x3fff) << 4; };
        start = decode(0), leading = decode(16), stride = decode(32);
        demand(descriptor >> 62 == 1, "an emulated factor has 128-byte swizzle");
        demand((descriptor >> 49 & 7) == 0, "an emulated factor's pattern begins on 1024 bytes");
        const unsigned long long unused = // bits 14–15, 30–31, 46–48 and 52–61
            0xc000ull | 0xc000ull << 16 | 0x1c000ull << 32 | 0x3ffull << 52;
        demand((descriptor & unused) == 0, "a descriptor has bits set that mean nothing");
    }

    Bf16 at(unsigned offset) const {
        return *reinterpret_cast<const volatile Bf16*>(at_address(swizzle_128(start + offset)));
    }
    // K-major, ((8, m), (T, 2k)) : ((8T, SBO), (1, T)): rows of 128 bytes, eight rows an atom.
    float k_major(int row, int k) const {
        return from_bf16(at(row % 8 * 128 + row / 8 * stride + k * sizeof(Bf16)));
    }
    // MN-major, ((T, 8, m), (8, k)) : ((1, T, LBO), (8T, SBO)): 64 of the n fill a row of 128
    // bytes, eight of the k an atom.
    float mn_major(int n, int k) const {
        const unsigned of_n = n % 64 * sizeof(Bf16) + n / 64 * leading;
        return from_bf16(at(of_n + k % 8 * 128 + k / 8 * stride));
    }
};

// The thread's rows of A, g and g + 8 of its warp's 16. From registers, its three neighbours have
// parts.
inline void rows_of_a(const Product& product, float (&a)[2][16]) {
    const int g = lane() / 4, warp = threadIdx.x / 32 % 4;
    if (!product.a_registers) {
        const Factor factor(product.a);
        for (int half = 0; half < 2; ++half)
            for (int k = 0; k < 16; ++k) a[half][k] = factor.k_major(16 * warp + g + 8 * half, k);
        return;
    }
    const char* all = exchange(product.a_registers, 4 * sizeof(unsigned), 32);
    for (int t = 0; t < 4; ++t) {
        unsigned words[4];
        copy(words, all + (4 * g + t) * sizeof words, sizeof words);
        for (int i = 0; i < 4; ++i)
            for (int e = 0; e < 2; ++e)
                a[i % 2][i / 2 * 8 + 2 * t + e] = from_bf16(Bf16(words[i] >> 16 * e));
    }
}

// D's layout: value 4 j + 2 half + e of the thread is row g + 8 half, column 8 j + 2 t + e. The
// last product gives the registers back.
inline void compute(Warpgroup& state, const Product& product) {
    float a[2][16];
    rows_of_a(product, a);
    const Factor b(product.b);
    Accumulator& held = state.accumulators[product.d];
    for (int j = 0; j < product.n / 8; ++j)
        for (int e = 0; e < 2; ++e) {
            const int column = 8 * j + 2 * (lane() % 4) + e;
            float sums[2] = {};
            for (int k = 0; k < 16; ++k) {
                const float b_k = product.b_along_n ? b.mn_major(column, k) : b.k_major(column, k);
                for (int half = 0; half < 2; ++half) sums[half] += a[half][k] * b_k;
            }
            for (int half = 0; half < 2; ++half) {
                float& d = held.values[4 * j + 2 * half + e];
                d = product.accumulate ? d + sums[half] : sums[half];
            }
        }
    if (--held.products > 0) return;
    for (int i = 0; i < product.n / 2; ++i) {
        demand(std::memcmp(&product.d[i], &UNDER_WAY, sizeof UNDER_WAY) == 0,
               "an accumulator is written while its product is under way");
        product.d[i] = held.values[i];
    }
    state.accumulators.erase(product.d);
}

inline void begin(const Product& product) {
    Warpgroup& state = of_thread<Warpgroup>();
    demand(state.fenced, "wgmma without wgmma.fence since registers were last used");
    same_in_all(product.a, 128, "descriptors differ in a warpgroup");
    same_in_all(product.b, 128, "descriptors differ in a warpgroup");
    state.uncommitted.push_back(product);
    Accumulator& held = state.accumulators[product.d];
    if (held.products++ == 0) {
        held.values.assign(product.d, product.d + product.n / 2);
        for (int i = 0; i < product.n / 2; ++i)
            std::memcpy(&product.d[i], &UNDER_WAY, sizeof UNDER_WAY);
    }
    demand(int(held.values.size()) == product.n / 2,
           "products of two shapes share their accumulators");
}

// Waits for the products of all groups but the latest `pending`.
inline void finish(int pending) {
    Warpgroup& state = of_thread<Warpgroup>();
    state.wait(pending, [&](const Product& product) { compute(state, product); });
    state.fenced = false;
    warp_barrier(); // .sync: all lanes of the warp have waited
}

} // namespace host

inline void wgmma_fence() { host::of_thread<host::Warpgroup>().fenced = true; }

inline void wgmma_commit() {
    auto& state = host::of_thread<host::Warpgroup>();
    state.commit();
    state.fenced = false; // stricter than the ISA, which asks again only if registers were touched
}

template <int pending> void wgmma_wait() { host::finish(pending); }

template <typename Registers> void pin(Registers&) {}

template <int half_n>
void wgmma(float (&d)[half_n], unsigned long long a, unsigned long long b, bool accumulate) {
    host::begin({d, 2 * half_n, accumulate, nullptr, a, b, false});
}

template <int half_n> void wgmma(float (&d)[half_n], const unsigned (&a)[4], unsigned long long b) {
    host::begin({d, 2 * half_n, true, a, 0, b, true});
}
