/* joint_sums.c - sums over a tensor axis that are adjacent in the program and in memory.
 *
 * schedule.c puts the sums of short gradients last, bucket.c then gives them neighbouring slots,
 * and memplan.c makes their terms there.  So the range from the first to the last of them is one
 * vector, whose elements are added as in separate sums; the padding between slots is added too and
 * never read. */
#include "exec/program/joint_sums.h"

enum { ALIGN_BYTES = 64 }; /* where slots begin */

static bool is_in_place(const tti_program *program, const tti_node *node) {
    if (node->op->collective != TTI_COLLECTIVE_SUM) return false;
    tti_buf in = program->bufs[node->in[0]->id], out = program->bufs[node->out[0]->id];
    return out.space == TTI_SPACE_GRAD && in.space == TTI_SPACE_GRAD && in.offset == out.offset &&
           node->out[0]->type.dtype == TUTTI_F32;
}

static size_t begin_of(const tti_program *program, int s) {
    return program->bufs[program->steps[s]->out[0]->id].offset;
}

static size_t end_of(const tti_program *program, int s) {
    return begin_of(program, s) + tti_value_n_bytes(program->steps[s]->out[0]);
}

/* Whether the next step sums the adjacent range. */
static bool goes_on(const tti_program *program, int s) {
    if (s + 1 >= program->n_steps || !is_in_place(program, program->steps[s])) return false;
    if (!is_in_place(program, program->steps[s + 1])) return false;
    size_t end = (end_of(program, s) + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    return begin_of(program, s + 1) == end;
}

size_t tti_joint_bytes(const tti_program *program, int s) {
    if (program->steps[s]->op->collective != TTI_COLLECTIVE_SUM) return 0;
    if (s > 0 && goes_on(program, s - 1)) return 0;
    size_t begin = begin_of(program, s);
    while (goes_on(program, s)) s++;
    return end_of(program, s) - begin;
}
