/* Holds open the moment in which MKL has noted this processor's number and has not translated it yet.
 *
 * Loaded before PyTorch (LD_PRELOAD), it answers for MKL's detection of the processor: an Intel one with AVX-512. MKL
 * stores that number, translates it, and stores the result, a few instructions later. Each thread that asks goes through
 * these one at a time, by the processor's trap flag, and rests after the first store. x86-64 and Linux only.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <string.h>
#include <time.h>
#include <ucontext.h>

enum { AVX512 = 9, TRAP_FLAG = 0x100, WINDOW = 64 /* bytes of code */ };

static const struct timespec rest = {0, 300000000}; /* 0.3 s: all other threads begin meanwhile */
static greg_t returned; /* where MKL goes on: the store of the number, which is the same for all threads */

static void after_each_instruction(int number, siginfo_t *info, void *context) {
    (void)number, (void)info;
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    if (registers[REG_RIP] <= returned || registers[REG_RIP] > returned + WINDOW)
        return; /* still here, or about to store */
    nanosleep(&rest, NULL);
    registers[REG_EFL] &= ~TRAP_FLAG;
}

int mkl_serv_vml_cpu_detect(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = after_each_instruction;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGTRAP, &action, NULL);
    returned = (greg_t)__builtin_return_address(0);
    __asm__ volatile("pushfq; orq %0, (%%rsp); popfq" ::"i"(TRAP_FLAG) : "memory", "cc");
    return AVX512;
}
