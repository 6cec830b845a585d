/* crc32c.h - the checksum of checkpoints: CRC-32C (Castagnoli), as in iSCSI and ext4.
 * It finds every single-bit error and every burst of up to 32 bits. */
#ifndef TTI_BASE_CRC32C_H
#define TTI_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* The checksum of some bytes followed by the n_bytes at data; crc is that of the bytes before, 0 at
 * the start.  data needs no alignment. */
uint32_t tti_crc32c(uint32_t crc, const void *data, size_t n_bytes);

/* The checksum of A followed by B, from those of A and of the n_bytes of B. */
uint32_t tti_crc32c_join(uint32_t crc_a, uint32_t crc_b, uint64_t n_bytes_b);

/* The same as tti_crc32c on every CPU: for CPUs without the instruction. */
uint32_t tti_crc32c_portable(uint32_t crc, const void *data, size_t n_bytes);

#endif /* TTI_BASE_CRC32C_H */
