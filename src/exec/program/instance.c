/* instance.c - binds a program to kernels: computes every pointer once before the first run.
 *
 * Only inputs and gradients move between runs; the locations of their pointers are kept in a short
 * list of patches. */
#include "exec/program/instance.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/flight.h"
#include "exec/program/collective.h"
#include "ops/loss/losses.h"

/* True if a node reads the samples; *offset is its first byte in a sample. */
static bool reads_samples(const tti_node *node, size_t *offset) {
    if (!(node->op->traits & TTI_INPUT)) return false;
    int64_t at = tti_attr_int(node, "offset");
    *offset = at < 0 ? 0 : (size_t)at;
    return at >= 0 || strcmp(node->name, "x") == 0;
}

tutti_status tti_inputs_find(const tti_program *program, tti_inputs *out) {
    const tutti_graph *g = program->graph;
    size_t offset;
    *out = (tti_inputs){.target = tti_program_input(program, "target"),
                        .rows = tti_program_input(program, "rows"),
                        .loss_scale = tti_program_input(program, "loss_scale")};
    for (int i = 0; i < g->n_nodes; i++) {
        if (!reads_samples(g->nodes[i], &offset)) continue;
        if (out->n_fields == TTI_MAX_INPUT_FIELDS)
            return tti_fail(TUTTI_E_UNSUPPORTED, "exec: a model can read at most %d fields",
                            TTI_MAX_INPUT_FIELDS);
        out->field[out->n_fields++] =
            (tti_input_field_at){tti_program_input(program, g->nodes[i]->name), offset,
                                 tti_value_n_bytes(g->nodes[i]->out[0])};
    }
    return TUTTI_OK;
}

size_t tti_inputs_sample_bytes(const tti_program *program) {
    const tutti_graph *g = program->graph;
    size_t n_bytes = 0, offset;
    for (int i = 0; i < g->n_nodes; i++)
        if (reads_samples(g->nodes[i], &offset))
            n_bytes = TTI_MAX(n_bytes, offset + tti_value_n_bytes(g->nodes[i]->out[0]));
    return n_bytes;
}

size_t tti_inputs_target_bytes(const tti_program *program) {
    const tti_node *target = tti_graph_find_source(program->graph, "target");
    return target ? tti_value_n_bytes(target->out[0]) : 0;
}

int64_t tti_inputs_rows(const tti_program *program) {
    const tutti_graph *g = program->graph;
    size_t offset;
    for (int i = 0; i < g->n_nodes; i++)
        if (reads_samples(g->nodes[i], &offset)) return g->nodes[i]->out[0]->type.shape.dim[0];
    return 0;
}

int64_t tti_inputs_most_rows(const tti_program *program) {
    const tutti_graph *g = program->graph;
    int64_t rows = tti_inputs_rows(program);
    for (int i = 0; i < g->n_nodes && rows == 0; i++) {
        const tutti_shape *shape = &g->nodes[i]->out[0]->type.shape;
        if ((g->nodes[i]->op->traits & TTI_INPUT) && shape->n_dims > 0) rows = shape->dim[0];
    }
    return rows;
}

static void point(tti_instance *instance, int input, const void *data) {
    if (input >= 0) tti_instance_set_input(instance, input, data);
}

void tti_inputs_point_at_samples(tti_instance *instance, const tti_inputs *inputs, const void *x) {
    for (int i = 0; i < inputs->n_fields; i++)
        tti_instance_set_input(instance, inputs->field[i].input,
                               (const char *)x + inputs->field[i].offset);
}

void tti_inputs_point(tti_instance *instance, const tti_inputs *inputs,
                      const tti_inputs_shard *shard, const float *loss_scale) {
    tti_inputs_point_at_samples(instance, inputs, shard->x);
    point(instance, inputs->target, shard->target);
    point(instance, inputs->rows, shard->rows);
    point(instance, inputs->loss_scale, loss_scale);
}

tutti_status tti_inputs_collect(const tti_device_ops *ops, const tti_instance *instance, int n_sums,
                                double *sums) {
    if (!tti_instance_sum(instance, 0)) return TUTTI_OK;
    for (int first = 0; first < n_sums; first += TTI_COLLECTED) {
        tti_collected c = {.n = TTI_MIN(n_sums - first, TTI_COLLECTED)};
        for (int i = 0; i < c.n; i++) c.from[i] = tti_instance_sum(instance, first + i);
        TTI_TRY(ops->step.collect(&c, sums + first));
    }
    return TUTTI_OK;
}

/* ---- prepares kernels before anything is allocated ----
 *
 * The scratch memory of a kernel is known once it is prepared, which on a device may include
 * timing; so it is done once, and the kernels are stored here until a program is bound to them. */

typedef struct ready {
    const tti_kernel *kernel; /* NULL: there is none, or it was taken */
    void *state;
} ready;

struct tti_prepared {
    int n_steps;
    size_t scratch_bytes;
    ready *steps; /* [n_steps] */
};

static void note_scratch(tti_prepared *p, size_t n_bytes) {
    p->scratch_bytes = TTI_MAX(p->scratch_bytes, n_bytes);
}

/* Collectives are not kernels of a backend; those of devices have their own memory. */
static tutti_status prepare(const tti_node *node, const tti_backend *backend, bool reference,
                            tti_prepared *p, ready *step) {
    if (node->op->traits & TTI_COLLECTIVE) {
        if (!backend->device) note_scratch(p, tti_collective_kernel.scratch_bytes(node, NULL));
        return TUTTI_OK;
    }
    const tti_kernel *kernel = backend->select(node, reference);
    if (!kernel) return TUTTI_OK; /* binding reports the error */
    if (kernel->prepare) TTI_TRY(kernel->prepare(node, &step->state));
    step->kernel = kernel;
    if (!kernel->scratch_bytes) return TUTTI_OK;
    note_scratch(p, kernel->scratch_bytes(node, step->state));
    return TUTTI_OK;
}

tutti_status tti_prepared_create(const tti_program *program, const tti_backend *backend,
                                 bool reference, tti_prepared **out) {
    tti_prepared *p = calloc(1, sizeof *p);
    if (p) p->steps = calloc((size_t)program->n_steps + 1, sizeof *p->steps);
    tutti_status st = TUTTI_OK;
    if (!p || !p->steps) st = tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    if (st == TUTTI_OK) p->n_steps = program->n_steps;
    if (st == TUTTI_OK && backend->precompile && !reference)
        backend->precompile(program->steps, program->n_steps);
    for (int s = 0; st == TUTTI_OK && s < program->n_steps; s++)
        st = prepare(program->steps[s], backend, reference, p, &p->steps[s]);
    if (st != TUTTI_OK) {
        tti_prepared_destroy(p);
        return st;
    }
    *out = p;
    return TUTTI_OK;
}

void tti_prepared_destroy(tti_prepared *p) {
    if (!p) return;
    for (int s = 0; s < p->n_steps; s++)
        if (p->steps[s].kernel && p->steps[s].kernel->release)
            p->steps[s].kernel->release(p->steps[s].state);
    free(p->steps);
    free(p);
}

size_t tti_prepared_scratch(const tti_prepared *p) { return p ? p->scratch_bytes : 0; }

bool tti_prepared_take(tti_prepared *p, int step, const tti_kernel **kernel, void **state) {
    if (!p || !p->steps[step].kernel) return false;
    *kernel = p->steps[step].kernel;
    *state = p->steps[step].state;
    p->steps[step].kernel = NULL;
    return true;
}

/* ---- instances ---- */

typedef struct bound_step {
    const tti_kernel *kernel;
    void *state;
    tti_kargs args;
    void *in[TTI_MAX_IN];
    void *out[TTI_MAX_OUT];
} bound_step;

typedef struct patch {
    void **where;
    tti_buf buf;
} patch;

struct tti_instance {
    tti_instance_desc desc;
    bound_step *steps; /* [program->n_steps] */
    patch *patches;
    int n_patches;
    tti_joint_step *joints; /* [program->n_steps]; NULL: no norm lies between collectives */
    bool *waits; /* [program->n_steps]: wait for overlapped collectives; NULL: there are none */
    void *consts, *results, *scratch;
    size_t scratch_bytes;
    int64_t collective_ns;        /* time in host collectives since it was last read */
    _Atomic int32_t *layer_place; /* in the flight recorder; NULL: none */
    int first_layer;
};

static void bind_pointer(tti_instance *it, const tutti_value *value, int step, void **where) {
    tti_buf buf = it->desc.program->bufs[value->id];
    const tti_bucket_memory *memory = it->desc.bucket_memory;
    switch (buf.space) {
        case TTI_SPACE_ARENA:
            *where = (char *)it->desc.arena + buf.offset;
            break;
        case TTI_SPACE_CONST:
            *where = (char *)it->consts + buf.offset;
            break;
        case TTI_SPACE_RESULT:
            *where = (char *)it->results + buf.offset;
            break;
        case TTI_SPACE_PARAM:
            *where = (char *)it->desc.params + buf.offset;
            if (memory)
                *where = it->desc.params +
                         tti_bucket_memory_at(memory, step, buf.offset / sizeof(float));
            break;
        case TTI_SPACE_LOW:
            *where = (char *)it->desc.low_copies + buf.offset;
            break;
        case TTI_SPACE_INPUT:
        case TTI_SPACE_GRAD:
            it->patches[it->n_patches++] = (patch){where, buf};
            break;
        case TTI_N_SPACES:
            break;
    }
}

static size_t no_scratch(const tti_node *node, const void *state) {
    (void)node, (void)state;
    return 0;
}

static tutti_status fail_alone(void *state, const tti_kargs *a) {
    (void)state;
    return tti_fail(TUTTI_E_INVALID, "exec: %s without others", a->node->op->name);
}

/* Kernel of device collectives in a program that is only inspected. */
static const tti_kernel inspection_kernel = {
    .op = "*", .name = "collective", .scratch_bytes = no_scratch, .run = fail_alone};

static tutti_status bind_kernel(const tti_instance *it, int index, bound_step *step) {
    const tti_node *node = it->desc.program->steps[index];
    if (node->op->traits & TTI_COLLECTIVE) {
        bool on_device = it->desc.backend->device != NULL;
        step->kernel = !on_device    ? &tti_collective_kernel
                       : it->desc.tp ? tti_tp_calls_of(it->desc.tp)->kernel
                                     : &inspection_kernel;
        step->state = on_device ? (void *)it->desc.tp : (void *)it->desc.tensor;
        return TUTTI_OK;
    }
    if (tti_prepared_take(it->desc.prepared, index, &step->kernel, &step->state)) return TUTTI_OK;
    step->kernel = it->desc.backend->select(node, it->desc.reference);
    if (!step->kernel)
        return tti_fail(TUTTI_E_UNSUPPORTED, "backend %s has no kernel for %s '%s'",
                        it->desc.backend->name, node->op->name, node->name);
    return step->kernel->prepare ? step->kernel->prepare(node, &step->state) : TUTTI_OK;
}

/* Copies bytes of the host to memory of the backend. */
static tutti_status upload(const tti_instance *it, void *dst, const void *src, size_t n_bytes) {
    const tti_device_ops *device = it->desc.backend->device;
    if (!device) {
        memcpy(dst, src, n_bytes);
        return TUTTI_OK;
    }
    TTI_TRY(device->queues.copy(TTI_QUEUE_COMPUTE, dst, src, n_bytes));
    return device->queues.sync();
}

static tutti_status build_instance(tti_instance *it) {
    const tti_program *program = it->desc.program;
    size_t n_pointers = 0;
    for (int s = 0; s < program->n_steps; s++)
        n_pointers += (size_t)(program->steps[s]->n_in + program->steps[s]->op->n_out);
    it->steps = calloc((size_t)program->n_steps + 1, sizeof *it->steps);
    it->patches = calloc(n_pointers + 1, sizeof *it->patches);
    if (it->desc.tp) {
        it->waits = calloc((size_t)program->n_steps + 1, sizeof *it->waits);
        if (!it->waits) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    }
    it->consts = it->desc.backend->alloc(program->const_bytes + 64);
    it->results = it->desc.backend->alloc(program->result_bytes + 64);
    if (!it->steps || !it->patches || !it->consts || !it->results)
        return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    tti_collective_norm joint;
    for (int s = 0; it->desc.tp && s < program->n_steps; s++) {
        bool is_norm = tti_collective_norm_at(program, s, &joint);
        if (!is_norm && !tti_rows_gather_at(program, s, &joint)) continue;
        if (!tti_tp_calls_of(it->desc.tp)->joins(it->desc.tp, program, &joint)) continue;
        if (!it->joints) it->joints = calloc((size_t)program->n_steps + 1, sizeof *it->joints);
        if (!it->joints) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
        tti_joint_step *at = &it->joints[s];
        at->norm = joint;
        int product = tti_tp_calls_of(it->desc.tp)->product(it->desc.tp, program, s, &joint);
        if (is_norm && product >= 0) it->joints[product].to = s, at->from = product;
        int next = s + joint.n_steps;
        at->pulls =
            next < program->n_steps &&
            tti_tp_calls_of(it->desc.tp)->may_pull(it->desc.tp, program->steps[next], &joint);
    }
    if (it->waits) tti_tp_waits(program, it->joints, it->waits);
    for (int s = 0; s < program->n_steps; s++) {
        const tti_node *node = it->desc.program->steps[s];
        TTI_TRY(bind_kernel(it, s, &it->steps[s]));
        if (it->steps[s].kernel->scratch_bytes) {
            size_t n = it->steps[s].kernel->scratch_bytes(node, it->steps[s].state);
            it->scratch_bytes = TTI_MAX(it->scratch_bytes, n);
        }
        for (int i = 0; i < node->n_in; i++) bind_pointer(it, node->in[i], s, &it->steps[s].in[i]);
        for (int k = 0; k < node->op->n_out; k++)
            bind_pointer(it, node->out[k], s, &it->steps[s].out[k]);
        it->steps[s].args =
            (tti_kargs){.node = node, .in = it->steps[s].in, .out = it->steps[s].out};
    }
    const tutti_graph *g = it->desc.program->graph;
    size_t n_bytes = it->desc.program->const_bytes;
    char *consts = calloc(1, n_bytes + 1);
    if (!consts) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    for (int i = 0; i < g->n_nodes; i++) {
        const tti_node *node = g->nodes[i];
        if (!(node->op->traits & TTI_CONSTANT)) continue;
        char *base = consts + it->desc.program->bufs[node->out[0]->id].offset;
        size_t n = (size_t)tti_value_n_elems(node->out[0]);
        for (size_t k = 0; k < n; k++)
            tti_store_elem(node->out[0]->type.dtype, base, k, tti_constant_elem(node, k));
    }
    tutti_status st = upload(it, it->consts, consts, n_bytes);
    free(consts);
    TTI_TRY(st);
    it->scratch = it->desc.backend->alloc(it->scratch_bytes + 64);
    if (!it->scratch)
        return tti_fail(TUTTI_E_NOMEM, "exec: cannot allocate %zu bytes", it->scratch_bytes);
    for (int s = 0; s < program->n_steps; s++) it->steps[s].args.scratch = it->scratch;
    return TUTTI_OK;
}

tutti_status tti_instance_create(const tti_instance_desc *desc, tti_instance **out) {
    *out = NULL;
    tti_instance *it = calloc(1, sizeof *it);
    if (!it) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    it->desc = *desc;
    tutti_status st = build_instance(it);
    if (st != TUTTI_OK) {
        tti_instance_destroy(it);
        return st;
    }
    *out = it;
    return TUTTI_OK;
}

void tti_instance_destroy(tti_instance *it) {
    if (!it) return;
    const tti_program *program = it->desc.program;
    for (int s = 0; it->steps && s < program->n_steps; s++)
        if (it->steps[s].kernel && it->steps[s].kernel->release)
            it->steps[s].kernel->release(it->steps[s].state);
    it->desc.backend->release(it->consts, program->const_bytes + 64);
    it->desc.backend->release(it->results, program->result_bytes + 64);
    it->desc.backend->release(it->scratch, it->scratch_bytes + 64);
    free(it->steps);
    free(it->joints);
    free(it->waits);
    free(it->patches);
    free(it);
}

void tti_instance_set_input(tti_instance *it, int input, const void *data) {
    for (int i = 0; i < it->n_patches; i++) {
        const patch *p = &it->patches[i];
        /* Inputs are only read, but kernels use one pointer type for inputs and outputs. */
        if (p->buf.space == TTI_SPACE_INPUT && p->buf.offset == (size_t)input)
            memcpy(p->where, &data, sizeof data);
    }
}

void tti_instance_set_grads(tti_instance *it, float *grads) {
    for (int i = 0; i < it->n_patches; i++)
        if (it->patches[i].buf.space == TTI_SPACE_GRAD)
            *it->patches[i].where = (char *)grads + it->patches[i].buf.offset;
}

void tti_instance_set_grad_places(tti_instance *it, float *places,
                                  const tti_bucket_memory *memory) {
    for (int i = 0; i < it->n_patches; i++) {
        const patch *p = &it->patches[i];
        if (p->buf.space == TTI_SPACE_GRAD)
            *p->where = places + tti_bucket_memory_at(memory, -1, p->buf.offset / sizeof(float));
    }
}

static tutti_status run_step(bound_step *step, const tti_run *run) {
    step->args.run = run;
    return step->kernel->run(step->state, &step->args);
}

int64_t tti_instance_take_collective_ns(tti_instance *it) {
    int64_t t_ns = it->collective_ns;
    it->collective_ns = 0;
    return t_ns;
}

/* Runs a step, under its name for tools that profile a device. */
static tutti_status run_named(tti_instance *it, bound_step *step, const tti_run *run) {
    const tti_device_ops *device = it->desc.backend->device;
    if (step->kernel == &tti_collective_kernel) {
        /* A collective of the host, which waits for other workers. */
        int64_t start = tti_now_ns();
        tutti_status st = run_step(step, run);
        it->collective_ns += tti_now_ns() - start;
        return st;
    }
    if (!device || !device->queues.range) return run_step(step, run);
    device->queues.range(step->args.node->name[0] ? step->args.node->name
                                                  : step->args.node->op->name);
    tutti_status st = run_step(step, run);
    device->queues.range(NULL);
    return st;
}

static tti_device_norm forward_of(const tti_collective_norm *joint, const bound_step *first) {
    const bound_step *norm = first + joint->n_steps - (joint->gather ? 2 : 1);
    return (tti_device_norm){.y = norm->out[0],
                             .branch = joint->branch,
                             .bias = joint->bias ? first[1].in[1] : NULL,
                             .x = norm->in[1 - joint->branch],
                             .sum = norm->out[1],
                             .gamma = norm->in[2],
                             .beta = norm->in[3],
                             .mean = norm->out[2],
                             .rstd = norm->out[3]};
}

static tti_device_norm backward_of(const tti_collective_norm *joint, const bound_step *first) {
    const bound_step *grads = first + 1;
    return (tti_device_norm){.x = grads->in[1],
                             .residual = joint->norm->n_in > 5 ? grads->in[5] : NULL,
                             .part = grads->in[0],
                             .sum = grads->out[0],
                             .gamma = grads->in[4],
                             .mean = grads->in[2],
                             .rstd = grads->in[3],
                             .dgamma = grads->out[1],
                             .dbeta = grads->out[2],
                             .dsums = joint->norm->op->n_out > 3 ? grads->out[3] : NULL,
                             .scratch = grads->args.scratch};
}

/* True if step s and the following ones run as one, in a range that ends at last. */
static bool is_joint(const tti_instance *it, int s, int last) {
    int n = it->joints ? it->joints[s].norm.n_steps : 0;
    if (n == 0 || s + n > last || !tti_tp_calls_of(it->desc.tp)->group(it->desc.tp)) return false;
    if (it->joints[s].norm.norm) return true;
    bool beside = s + n < last && (it->joints[s].pulls || !it->waits[s + n]);
    return beside && tti_tp_calls_of(it->desc.tp)->opens(it->desc.tp);
}

/* The step of the norm to which product s pushes its terms; 0: none. */
static int pushes_to(const tti_instance *it, int s, int last) {
    int to = it->joints ? it->joints[s].to : 0;
    return to > 0 && is_joint(it, to, last) ? to : 0;
}

/* True if a product in a range that begins at first has pushed its terms to the norm at step s. */
static bool is_pushed(const tti_instance *it, int s, int first) {
    int product = it->joints[s].from;
    return product >= first && it->joints[product].to == s;
}

/* Describes the rows of product s, which the norm at step `of` uses. */
static tti_device_push rows_of(tti_instance *it, int s, int of, const tti_run *run) {
    const tti_collective_norm *norm = &it->joints[of].norm;
    bound_step *step = &it->steps[s];
    step->args.run = run;
    return (tti_device_push){.kernel = step->kernel,
                             .state = step->state,
                             .args = &step->args,
                             .inbox = tti_tp_calls_of(it->desc.tp)->inbox(it->desc.tp),
                             .n_blocks = (size_t)norm->n_blocks,
                             .n_rows = (size_t)norm->n_rows,
                             .width = (size_t)norm->width};
}

/* Runs the steps from s on as one. kept: the next step may be pulled. */
static tutti_status run_norm(const tti_instance *it, int s, int last, bool pushed, bool *kept) {
    const tti_collective_norm *joint = &it->joints[s].norm;
    int next = s + joint->n_steps;
    bool overlapped = next < last && (it->joints[s].pulls || !it->waits[next]);
    const tti_buf *bufs = it->desc.program->bufs;
    const bound_step *first = &it->steps[s];
    tti_device_norm norm = !joint->norm     ? (tti_device_norm){.x = first->in[0]}
                           : joint->is_grad ? backward_of(joint, first)
                                            : forward_of(joint, first);
    norm.node = joint->norm ? joint->norm : joint->gather;
    if (joint->scatter) norm.terms = bufs[joint->scatter->in[0]->id].offset;
    if (joint->gather) norm.whole = bufs[joint->gather->out[0]->id].offset;
    norm.stays = !joint->gather;
    norm.n_blocks = (size_t)joint->n_blocks;
    norm.n_rows = (size_t)joint->n_rows;
    norm.width = (size_t)joint->width;
    norm.pushed = pushed;
    norm.inbox = pushed ? tti_tp_calls_of(it->desc.tp)->inbox(it->desc.tp) : 0;
    norm.pulled = it->joints[s].pulls;
    if (joint->norm)
        TTI_TRY(tti_tp_calls_of(it->desc.tp)->norm(it->desc.tp, &norm, overlapped));
    else
        TTI_TRY(tti_tp_calls_of(it->desc.tp)->open_rows(it->desc.tp, &norm));
    *kept = norm.kept && it->joints[s].pulls;
    return TUTTI_OK;
}

static tutti_status wait_for_all(const tti_instance *it) {
    tti_device_tp *tp = it->desc.tp;
    return tp ? tti_tp_calls_of(tp)->wait(tp) : TUTTI_OK;
}

void tti_instance_show_layers(tti_instance *it, _Atomic int32_t *place, int first_layer) {
    it->layer_place = place;
    it->first_layer = first_layer;
}

tutti_status tti_instance_run_range(tti_instance *it, const tti_run *run, int first, int last,
                                    tti_after_step after, void *user) {
    for (int s = first, from = -1; s < last; s++) {
        if (it->layer_place) tti_flight_layer(it->layer_place, it->first_layer + s);
        bool kept = false, joint = is_joint(it, s, last);
        int n = joint ? it->joints[s].norm.n_steps : 1, to = pushes_to(it, s, last);
        if (from < 0) {
            /* Before a step: waits until collectives on its inputs and outputs are complete. */
            bool is_collective = (it->desc.program->steps[s]->op->traits & TTI_COLLECTIVE) != 0;
            if (it->waits) {
                if (it->waits[s]) TTI_TRY(wait_for_all(it));
                bool is_last = s + 1 == it->desc.program->n_steps;
                if (is_collective && (is_last || it->waits[s + 1]))
                    tti_tp_calls_of(it->desc.tp)->alone(it->desc.tp);
            }
        }
        if (joint) {
            TTI_TRY(run_norm(it, s, last, is_pushed(it, s, first), &kept));
        } else if (from >= 0 || to > 0) {
            const tti_tp_calls *calls = tti_tp_calls_of(it->desc.tp);
            const tti_device_push rows = rows_of(it, s, from >= 0 ? from : to, run);
            TTI_TRY((from >= 0 ? calls->pull : calls->push)(it->desc.tp, &rows));
        } else {
            TTI_TRY(run_named(it, &it->steps[s], run));
        }
        for (int k = 0; after && k < n; k++) after(s + k, user);
        from = kept ? s : -1;
        s += n - 1;
    }
    return wait_for_all(it);
}

tutti_status tti_instance_run(tti_instance *it, const tti_run *run, tti_after_step after,
                              void *user) {
    return tti_instance_run_range(it, run, 0, it->desc.program->n_steps, after, user);
}

int tti_instance_n_steps(const tti_instance *it) { return it->desc.program->n_steps; }

const tti_node *tti_instance_node(const tti_instance *it, int step) {
    return it->desc.program->steps[step];
}

const void *tti_instance_step_in(const tti_instance *it, int step) { return it->steps[step].in[0]; }

void *tti_instance_step_out(tti_instance *it, int step, int k) { return it->steps[step].out[k]; }

bool tti_instance_has_output(const tti_instance *it, const char *name) {
    return tti_graph_output(it->desc.program->graph, name) != NULL;
}

const void *tti_instance_output(const tti_instance *it, const char *name) {
    const tutti_value *value = tti_graph_output(it->desc.program->graph, name);
    TTI_ASSERT(value != NULL);
    tti_buf buf = it->desc.program->bufs[value->id];
    TTI_ASSERT(buf.space == TTI_SPACE_RESULT);
    return (const char *)it->results + buf.offset;
}

/* The output of the model's own metric number i; NULL: the program has none. */
static const char *metric_output(const tti_instance *it, int i) {
    const tutti_graph *g = it->desc.program->graph;
    for (int k = 0; k < g->n_outputs; k++)
        if (tti_is_own_metric(g->outputs[k].name) && i-- == 0) return g->outputs[k].name;
    return NULL;
}

const float *tti_instance_sum(const tti_instance *it, int i) {
    static const char *const names[TTI_LOSS_SUMS] = {"loss_sum", "count", "correct"};
    int of_metric = i - TTI_LOSS_SUMS;
    const char *name = of_metric < 0 ? names[i] : metric_output(it, of_metric / 2);
    if (!name || !tti_instance_has_output(it, name)) return NULL;
    return (const float *)tti_instance_output(it, name) + (of_metric < 0 ? 0 : of_metric % 2);
}

static bool is_finite(const bound_step *step) {
    for (int k = 0; k < step->args.node->op->n_out; k++) {
        const tutti_value *out = step->args.node->out[k];
        if (out->type.dtype == TUTTI_F32 &&
            !tti_all_finite(step->out[k], (size_t)tti_value_n_elems(out)))
            return false;
    }
    return true;
}

tutti_status tti_instance_find_nonfinite(tti_instance *it, const tti_run *run, int first, int last,
                                         int *step) {
    *step = -1;
    for (int s = first; s < last; s++) {
        TTI_TRY(run_step(&it->steps[s], run));
        if (*step < 0 && !is_finite(&it->steps[s])) *step = s;
    }
    return TUTTI_OK;
}

const char *tti_instance_kernel(const tti_instance *it, int step) {
    return it->steps[step].kernel->name;
}
