// A block of CUDA threads on one thread of a CPU, as fibers that run one at a time.
//
// This file is compiled without a sanitizer even where the kernel has one, so that the machine's
// own reads and writes are not taken for the kernel's. It tells the sanitizers what it does
// instead: to ThreadSanitizer each fiber is a thread, switches order nothing, and barriers order
// everything.

#include "cuda.h"

#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>
#include <ucontext.h>

// There only if the program was linked with the sanitizer in question.
#define MAYBE extern "C" __attribute__((weak))
MAYBE void* __tsan_create_fiber(unsigned flags);
MAYBE void* __tsan_get_current_fiber();
MAYBE void __tsan_switch_to_fiber(void* fiber, unsigned flags);
MAYBE void __tsan_acquire(void* tag);
MAYBE void __tsan_release(void* tag);
MAYBE void __asan_poison_memory_region(const volatile void* from, size_t bytes);
MAYBE void __asan_unpoison_memory_region(const volatile void* from, size_t bytes);
MAYBE void __sanitizer_start_switch_fiber(void** fake_stack, const void* stack, size_t bytes);
MAYBE void __sanitizer_finish_switch_fiber(void* fake_stack, const void** stack, size_t* bytes);

// All the shared memory that a block of an H100 may have. The alignment is what bulk copies want.
alignas(1024) char memory[227 * 1024];

dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace host {

unsigned block_number = 0;
int missing_barrier = 0;
unsigned seed = 0;

namespace {

constexpr unsigned ORDERS_NOTHING = 1; // a flag of __tsan_switch_to_fiber
constexpr int MOST_THREADS = 1024;
constexpr size_t STACK = 256 * 1024;
constexpr size_t MOST_EXCHANGED = 64; // bytes a thread

// Some threads meet. Two tags alternate: who is early at the next meeting must not be seen by who
// is late in leaving this one.
struct Meeting {
    int arrived = 0;
    int line = 0;
    unsigned round = 0;
    char tags[2];
};

// A stack, and what is known of the code that runs on it.
struct Context {
    ucontext_t registers;
    const void* stack = nullptr;
    size_t stack_bytes = 0;
    void* tsan = nullptr;
    void* fake_stack = nullptr; // the address sanitizer's
};

struct Fiber {
    Context context;
    bool done = false;
    bool (*ready)(const void*) = nullptr; // what it waits for, if it waits
    const void* of = nullptr;
    const char* what = "";
    int line = 0;
};

struct Group {
    Meeting meeting;
    char table[2][128 * MOST_EXCHANGED]; // two, in turns, for the same reason
};

Fiber fibers[MOST_THREADS];
Meeting block, warps[MOST_THREADS / 32], named[16];
Group warp_groups[MOST_THREADS / 32], warpgroups[MOST_THREADS / 128];
Context scheduler;
int current = 0;
char begin_tag, end_tag;
void (*the_kernel)(const void*) = nullptr;
const void* the_arguments = nullptr;

// Leaves one stack for another, for good if no fiber comes back. Returns when one does.
void switch_stacks(Context& from, const Context& to, bool for_good = false) {
    if (__sanitizer_start_switch_fiber)
        __sanitizer_start_switch_fiber(for_good ? nullptr : &from.fake_stack, to.stack,
                                       to.stack_bytes);
    if (__tsan_switch_to_fiber) __tsan_switch_to_fiber(to.tsan, ORDERS_NOTHING);
    swapcontext(&from.registers, &to.registers);
    if (__sanitizer_finish_switch_fiber)
        __sanitizer_finish_switch_fiber(from.fake_stack, nullptr, nullptr);
}

void body() {
    if (__sanitizer_finish_switch_fiber)
        __sanitizer_finish_switch_fiber(nullptr, &scheduler.stack, &scheduler.stack_bytes);
    acquire(&begin_tag);
    the_kernel(the_arguments);
    release(&end_tag);
    fibers[current].done = true;
    switch_stacks(fibers[current].context, scheduler, true);
}

void prepare(Fiber& fiber) {
    Context& context = fiber.context;
    if (!context.stack) {
        const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        void* stack = mmap(nullptr, STACK, PROT_READ | PROT_WRITE, flags, -1, 0);
        if (stack == MAP_FAILED) fail("no memory for the stacks of its threads");
        context.stack = stack;
        context.stack_bytes = STACK;
        if (__tsan_create_fiber) context.tsan = __tsan_create_fiber(0);
    }
    getcontext(&context.registers);
    context.registers.uc_stack.ss_sp = const_cast<void*>(context.stack);
    context.registers.uc_stack.ss_size = STACK;
    context.registers.uc_link = nullptr;
    makecontext(&context.registers, body, 0);
    context.fake_stack = nullptr;
    fiber.done = false;
    fiber.ready = nullptr;
}

// ANCHOR: round
// One turn for every thread that can run; false if none could.
bool round(const int* order, int threads) {
    bool progress = false;
    for (int i = 0; i < threads; ++i) {
        Fiber& fiber = fibers[order[i]];
        if (fiber.done || (fiber.ready && !fiber.ready(fiber.of))) continue;
        fiber.ready = nullptr;
        current = order[i];
        threadIdx = {unsigned(current), 0, 0};
        switch_stacks(scheduler, fiber.context);
        progress = true;
    }
    return progress;
}
// ANCHOR_END: round

void report_deadlock(int threads) {
    std::fprintf(stderr, "error: block (%u, %u): no thread can go on\n", blockIdx.x, blockIdx.y);
    for (int i = 0, shown = 0; i < threads && shown < 8; ++i) {
        const Fiber& fiber = fibers[i];
        if (i > 0 && fibers[i - 1].done == fiber.done && fibers[i - 1].line == fiber.line
            && fibers[i - 1].what == fiber.what) continue;
        if (fiber.done) std::fprintf(stderr, "  from thread %d: has left the kernel\n", i);
        else std::fprintf(stderr, "  from thread %d: waits at %s, line %d\n", i, fiber.what, fiber.line);
        ++shown;
    }
    std::fflush(stderr);
    std::_Exit(3);
}

void run_block(const Launch& launch) {
    // What no thread wrote is not a number, and what no kernel asked for is not there.
    std::memset(memory, 0xff, launch.shared_bytes);
    if (__asan_poison_memory_region)
        __asan_poison_memory_region(memory + launch.shared_bytes,
                                    sizeof memory - launch.shared_bytes);
    ++block_number;
    block = Meeting();
    for (auto& meeting : warps) meeting = Meeting();
    for (auto& meeting : named) meeting = Meeting();
    for (auto& group : warp_groups) group.meeting = Meeting();
    for (auto& group : warpgroups) group.meeting = Meeting();
    int order[MOST_THREADS];
    unsigned state = seed;
    for (int i = 0; i < launch.threads; ++i) {
        prepare(fibers[i]);
        order[i] = i;
        if (seed) { // Fisher and Yates, by a linear congruential generator
            state = state * 1664525u + 1013904223u;
            const int j = int(uint64_t(state) * (i + 1) >> 32);
            order[i] = order[j];
            order[j] = i;
        }
    }
    release(&begin_tag);
    for (bool all_done = false; !all_done;) {
        if (!round(order, launch.threads)) report_deadlock(launch.threads);
        all_done = true;
        for (int i = 0; i < launch.threads; ++i) all_done = all_done && fibers[i].done;
    }
    acquire(&end_tag);
    if (__asan_unpoison_memory_region) __asan_unpoison_memory_region(memory, sizeof memory);
}

struct Round {
    const Meeting* meeting;
    unsigned round;
};

bool round_is_over(const void* of) {
    const auto& since = *static_cast<const Round*>(of);
    return since.meeting->round != since.round;
}

// ANCHOR: meet
// Arrives, and if `wait`, stays until `expected` have arrived. With `ordered`, memory is ordered
// too.
void meet(Meeting& meeting, int expected, bool wait, bool ordered, const char* what, int line) {
    const Round here{&meeting, meeting.round};
    void* tag = &meeting.tags[meeting.round % 2];
    if (ordered) release(tag);
    fibers[current].line = line;
    if (++meeting.arrived == expected) {
        meeting.arrived = 0;
        ++meeting.round;
    } else if (wait) {
        wait_until(round_is_over, &here, what);
    }
    if (ordered && wait) acquire(tag);
}
// ANCHOR_END: meet

} // namespace

[[noreturn]] void fail(const char* what) {
    std::fprintf(stderr, "error: block (%u, %u), thread %u: %s\n", blockIdx.x, blockIdx.y,
                 threadIdx.x, what);
    std::fflush(stderr);
    std::_Exit(3);
}

void release(void* tag) {
    if (__tsan_release) __tsan_release(tag);
}

void acquire(void* tag) {
    if (__tsan_acquire) __tsan_acquire(tag);
}

void wait_until(bool (*ready)(const void*), const void* of, const char* what) {
    Fiber& fiber = fibers[current];
    fiber.ready = ready;
    fiber.of = of;
    fiber.what = what;
    switch_stacks(fiber.context, scheduler);
}

void block_barrier(int line) {
    if (line == missing_barrier) return;
    if (block.arrived > 0 && block.line != line)
        fail("its threads wait at different calls of __syncthreads()");
    block.line = line;
    meet(block, int(blockDim.x), true, true, "__syncthreads()", line);
}

void warp_barrier() {
    meet(warps[current / 32], 32, true, true, "__syncwarp()", 0);
}

void named_barrier(int number, int threads, bool wait) {
    if (number < 0 || number >= 16) fail("a named barrier has a number from 0 to 15");
    meet(named[number], threads, wait, true, "a named barrier", number);
}

// Byte by byte, and volatile, so that no call of memcpy comes of it: the sanitizers watch those.
void copy(void* to, const void* from, size_t bytes) {
    auto* target = static_cast<volatile char*>(to);
    const auto* source = static_cast<const volatile char*>(from);
    for (size_t i = 0; i < bytes; ++i) target[i] = source[i];
}

const char* exchange(const void* mine, size_t bytes, int lanes) {
    if (bytes > MOST_EXCHANGED) fail("too much to exchange at once");
    Group& group = lanes == 32 ? warp_groups[current / 32] : warpgroups[current / 128];
    char* table = group.table[group.meeting.round % 2];
    copy(table + current % lanes * bytes, mine, bytes);
    meet(group.meeting, lanes, true, false, "an exchange between lanes", 0);
    return table;
}

void run(const Launch& launch, void (*kernel)(const void*), const void* arguments) {
    if (launch.threads > MOST_THREADS || launch.threads % 32 != 0)
        fail("a block has at most 1024 threads, in whole warps");
    if (launch.shared_bytes > int(sizeof memory)) fail("so much shared memory no block has");
    if (__tsan_get_current_fiber) scheduler.tsan = __tsan_get_current_fiber();
    the_kernel = kernel;
    the_arguments = arguments;
    gridDim = launch.grid;
    blockDim = {unsigned(launch.threads), 1, 1};
    for (unsigned y = 0; y < launch.grid.y; ++y)
        for (unsigned x = 0; x < launch.grid.x; ++x) {
            blockIdx = {x, y, 0};
            run_block(launch);
        }
}

} // namespace host
