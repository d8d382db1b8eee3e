/* An allocator of CPU tensors that keeps what is freed, each block by itself.
 *
 * The C library gives a large freed block back to the system, and the next step gets fresh pages, which the kernel
 * clears one by one. Told to keep it, it keeps it on the heap, where any small object may take the first bytes of a
 * tensor's place: the next tensor of that size no longer fits and lies on fresh pages all the same.
 *
 * So a block of some size is mapped once, and is used again, whole, for tensors of that size or a little less. Small
 * tensors stay with PyTorch's own allocator. Compiled at run time (perfkit/kernels/c/keeping.py).
 */
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <sys/mman.h>

#include <map>
#include <mutex>
#include <unordered_map>

namespace {

constexpr size_t LEAST = 128 << 10; /* bytes: from where glibc, by itself, maps a block apart */
constexpr size_t PAGE = 4096, HUGE_PAGE = 2 << 20;
constexpr size_t WASTE = 8; /* a block serves a tensor that leaves at most this part of it unused */

c10::Allocator *usual = nullptr;

/* Never destroyed: tensors are freed at the end of the process, after static objects. */
struct Blocks {
    std::mutex lock;
    std::multimap<size_t, void *> unused;
    std::unordered_map<void *, size_t> sizes;
};

Blocks &blocks() {
    static auto *all = new Blocks;
    return *all;
}

void *fresh(size_t size) {
    const size_t whole = size >= HUGE_PAGE ? size + HUGE_PAGE : size;
    void *mapped = mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED)
        return nullptr;
    if (whole == size)
        return mapped;
    const auto begin = reinterpret_cast<size_t>(mapped), aligned = (begin + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
    if (aligned > begin)
        munmap(mapped, aligned - begin);
    if (aligned + size < begin + whole)
        munmap(reinterpret_cast<void *>(aligned + size), begin + whole - aligned - size);
#ifdef MADV_HUGEPAGE
    madvise(reinterpret_cast<void *>(aligned), size, MADV_HUGEPAGE);
#endif
    return reinterpret_cast<void *>(aligned);
}

/* A block of at least `bytes`, or null: an unused one that fits, else a fresh one, else one in the place of all unused. */
void *take(size_t bytes) {
    Blocks &all = blocks();
    const std::lock_guard<std::mutex> held(all.lock);
    const auto found = all.unused.lower_bound(bytes);
    if (found != all.unused.end() && found->first - bytes <= found->first / WASTE) {
        void *block = found->second;
        all.unused.erase(found);
        return block;
    }
    const size_t size = (bytes + PAGE - 1) / PAGE * PAGE;
    void *block = fresh(size);
    if (block == nullptr) {
        for (const auto &[unused_size, unused] : all.unused) {
            munmap(unused, unused_size);
            all.sizes.erase(unused);
        }
        all.unused.clear();
        block = fresh(size);
    }
    if (block != nullptr)
        all.sizes[block] = size;
    return block;
}

void release(void *block) {
    c10::profiledCPUMemoryReporter().Delete(block);
    Blocks &all = blocks();
    const std::lock_guard<std::mutex> held(all.lock);
    all.unused.emplace(all.sizes.at(block), block);
}

/* For who has an address alone (oneDNN): the block may be of either allocator, and older than this one. */
void release_either(void *block) {
    Blocks &all = blocks();
    bool ours;
    {
        const std::lock_guard<std::mutex> held(all.lock);
        ours = all.sizes.count(block) != 0;
    }
    ours ? release(block) : usual->raw_deleter()(block);
}

struct Keeping final : c10::Allocator {
    c10::DataPtr allocate(size_t bytes) override {
        void *block = bytes < LEAST ? nullptr : take(bytes);
        if (block == nullptr) /* too small; or there is no memory, which PyTorch's own says in its own words */
            return usual->allocate(bytes);
        c10::profiledCPUMemoryReporter().New(block, bytes);
        return {block, block, &release, c10::Device(c10::DeviceType::CPU)};
    }

    c10::DeleterFnPtr raw_deleter() const override { return usual->raw_deleter() == nullptr ? nullptr : &release_either; }

    void copy_data(void *to, const void *from, size_t bytes) const override { default_copy_data(to, from, bytes); }
};

} // namespace

/* Put the allocator in the place of PyTorch's own; whether it is there now. */
extern "C" int perfkit_keep_freed() {
    static auto *keeping = new Keeping;
    if (usual == nullptr) {
        usual = c10::GetAllocator(c10::DeviceType::CPU);
        c10::SetAllocator(c10::DeviceType::CPU, keeping, 255);
    }
    return c10::GetAllocator(c10::DeviceType::CPU) == keeping;
}
