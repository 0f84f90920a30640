/* Start-up of QEMU's mps2-an386 (Cortex-M4F), and the number of instructions of a step.
   Under -icount shift=0 one instruction takes one nanosecond of the board's time, so SysTick (25 MHz) counts 40 of them. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include FILTER_HEADER

extern void _start(void);
extern uint32_t stack_top;

static void reset(void)
{
    *(volatile uint32_t *)0xE000ED88u |= 0xFu << 20; /* the floating-point unit */
    __asm volatile("dsb\n isb");
    _start();
}

static void fault(void)
{
    for (;;) {
    }
}

__attribute__((section(".vectors"), used)) static const void *const vectors[16] = {
    &stack_top, (const void *)reset, (const void *)fault, (const void *)fault,
    (const void *)fault, (const void *)fault, (const void *)fault,
};

static volatile uint32_t *const systick = (volatile uint32_t *)0xE000E010u;

int main(void)
{
    static FILTER(state) state;
    static FILTER(output) out;
    static const FILTER(real) y[CHANNELS] = {0}, u[CONTROLS + 1] = {0};
    (void)u;
    FILTER(init)(&state);
    systick[1] = 0xFFFFFF;
    systick[2] = 0;
    systick[0] = 5;
    for (int t = 0; t < 3; ++t) {
        const uint32_t begin = systick[2];
        for (int i = 0; i < 10; ++i) {
            FILTER(step)(STEP_ARGUMENTS);
        }
        printf("%lu\n", (unsigned long)(((begin - systick[2]) & 0xFFFFFF) * 4u));
    }
    exit(out.status != 0);
}
