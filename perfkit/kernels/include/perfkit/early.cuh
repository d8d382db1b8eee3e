/* Kernels that begin while the one before them on the stream ends, as the host function asks by `early=True`.
 *
 * Until `after_previous` such a kernel may read only what that one does not write, and must not write; every thread calls
 * it. Elsewhere, and before sm_90, kernels begin when the one before has ended, and both calls do nothing.
 */
#pragma once

#include <perfkit/device.cuh>

/* From here on the kernel after this one may begin, once every block has come here. */
DEVICE void next_may_begin() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

/* The kernel before this one has ended, and what it wrote is there. */
DEVICE void after_previous() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* 16 bytes from global to shared memory, without a register; there for this thread after `all_staged`. */
DEVICE void stage(uint4 *to, const void *from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((uint32)__cvta_generic_to_shared(to)), "l"(from));
}

DEVICE void all_staged() { asm volatile("cp.async.wait_all;" ::: "memory"); }

/* What was staged since the call before is one group; then, whether all groups but the last are there. */
DEVICE void staged_together() { asm volatile("cp.async.commit_group;" ::: "memory"); }
DEVICE void all_but_the_last_staged() { asm volatile("cp.async.wait_group 1;" ::: "memory"); }
