/* symbols.h - names of functions in the stack of another process. */
#ifndef TTI_LAUNCH_SYMBOLS_H
#define TTI_LAUNCH_SYMBOLS_H

#include <stddef.h>
#include <stdint.h>

/* Writes the name of the function at address pc in process pid, such as "tti_exec_end", or file and
 * offset if no symbol is known, "libm.so.6+0x1234". out [n_bytes]. */
void tti_symbol_of(int pid, uint64_t pc, char *out, size_t n_bytes);

#endif /* TTI_LAUNCH_SYMBOLS_H */
