/* symbols.h - names of functions in the stack of another process. */
#ifndef TTI_LAUNCH_SYMBOLS_H
#define TTI_LAUNCH_SYMBOLS_H

#include <stddef.h>
#include <stdint.h>

/* Writes the function that has address pc in process pid, "tti_exec_end", or the file and offset if
 * no symbol is known, "libm.so.6+0x1234".  out has n_bytes. */
void tti_symbol_of(int pid, uint64_t pc, char *out, size_t n_bytes);

#endif /* TTI_LAUNCH_SYMBOLS_H */
