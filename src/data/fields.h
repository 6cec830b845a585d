/* fields.h - samples that have several named parts, such as x, mask and y.
 *
 * A sample as stored has its fields one after the other without gaps.  In a batch each field of a
 * shard is a block [rows, ...] of its own, so that it is an input of the model as it lies there. */
#ifndef TTI_DATA_FIELDS_H
#define TTI_DATA_FIELDS_H

#include "tutti/data.h"

enum { TTI_MAX_FIELDS = 32, TTI_FIELD_ALIGN = 64, TTI_MAX_FIELD_NAME = 64 };

size_t tti_field_bytes(const tutti_field *field); /* of one sample */

/* Bytes from the start of a shard's samples to the block of field i; i = n_fields: to their end. */
size_t tti_field_offset(const tutti_field *fields, int i, int64_t rows);

/* Bytes of a stored sample. */
size_t tti_fields_bytes(const tutti_field *fields, int n_fields);

/* Copies a stored sample to row `row` of the blocks of a shard. */
void tti_fields_put(const tutti_field *fields, int n_fields, const void *sample, int64_t row,
                    int64_t rows, void *shard);

/* The field of that name, -1: there is none. */
int tti_field_find(const tutti_field *fields, int n_fields, const char *name);

/* The field with the target of a loss: that of this name, or if it is "" the first one with a usual
 * name, such as y; -1: there is none. */
int tti_field_find_target(const tutti_field *fields, int n_fields, const char *name);

/* Name, type and range of every field, a line each, from all samples that can be read; freed with
 * free(), NULL when out of memory. */
char *tti_fields_print(const tutti_dataset *ds);

#endif /* TTI_DATA_FIELDS_H */
