/* tp_waits.c - finds which steps must wait for a collective, by the bytes they touch. */
#include "exec/program/tp_waits.h"

static bool overlap(const tti_program *program, const tutti_value *a, const tutti_value *b) {
    tti_buf x = program->bufs[a->id], y = program->bufs[b->id];
    if (x.space != y.space) return false;
    if (x.space == TTI_SPACE_INPUT) return x.offset == y.offset;
    return x.offset < y.offset + tti_value_n_bytes(b) && y.offset < x.offset + tti_value_n_bytes(a);
}

static bool writes_over(const tti_program *program, const tti_node *step,
                        const tutti_value *value) {
    for (int k = 0; k < step->op->n_out; k++)
        if (overlap(program, step->out[k], value)) return true;
    return false;
}

/* The step cannot begin before the exchange has ended. */
static bool collide(const tti_program *program, const tti_node *exchange, const tti_node *step) {
    for (int i = 0; i < step->n_in; i++)
        if (overlap(program, step->in[i], exchange->out[0])) return true;
    return writes_over(program, step, exchange->in[0]) ||
           writes_over(program, step, exchange->out[0]);
}

static void wait_for_exchanges(const tti_program *program, bool *waits) {
    for (int s = 0; s < program->n_steps; s++) {
        const tti_node *node = program->steps[s];
        if (!(node->op->traits & TTI_COLLECTIVE)) continue;
        for (int t = s + 1; t < program->n_steps; t++) {
            if (program->steps[t]->op->traits & TTI_COLLECTIVE) continue;
            if (!waits[t] && !collide(program, node, program->steps[t])) continue;
            waits[t] = true; /* including all earlier ones */
            break;
        }
    }
}

/* The first step from first on that writes over value; n_steps: none. */
static int overwriter(const tti_program *program, const tutti_value *value, int first) {
    for (int s = first; s < program->n_steps; s++)
        if (writes_over(program, program->steps[s], value)) return s;
    return program->n_steps;
}

/* The step at which the wait of step t happens: norms run as one with the steps around them, and
 * with the product that pulls their rows. */
static int waiting_place(const tti_joint_step *joints, int t) {
    for (int s = t; s >= 0; s--) {
        int n = joints[s].norm.n_steps;
        if (n > 0) return t < s + n + joints[s].pulls ? s : t;
    }
    return t;
}

static void wait_for_rows(const tti_program *program, const tti_joint_step *joints, bool *waits) {
    for (int s = 0; s < program->n_steps; s++) {
        const tti_norm_exchange *norm = &joints[s].norm;
        if (!joints[s].pulls) continue;
        int t = overwriter(program, norm->gather->out[0], s + norm->n_steps + 1);
        if (t < program->n_steps) waits[waiting_place(joints, t)] = true;
    }
}

void tti_tp_waits(const tti_program *program, const tti_joint_step *joints, bool *waits) {
    for (int s = 0; s < program->n_steps; s++) waits[s] = false;
    wait_for_exchanges(program, waits);
    if (joints) wait_for_rows(program, joints, waits);
}
