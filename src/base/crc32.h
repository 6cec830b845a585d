/* crc32.h - the checksum of zip archives: CRC-32 (IEEE 802.3), as in gzip and PNG. */
#ifndef TTI_BASE_CRC32_H
#define TTI_BASE_CRC32_H

#include <stddef.h>
#include <stdint.h>

/* The checksum of some bytes followed by the n_bytes at data; crc is that of the bytes before, 0 at
 * the start. */
uint32_t tti_crc32(uint32_t crc, const void *data, size_t n_bytes);

#endif /* TTI_BASE_CRC32_H */
