/* decoder.c - runs the model's decoding graph (tutti_model.decode) with the parameters of a
 * predictor.
 *
 * The graph takes the caches as inputs and returns them, extended by one position, as outputs.  Two
 * instances of one program alternate: the outputs of one are the inputs of the other, so nothing is
 * copied.  Shards cannot be computed in parallel, because all samples have the same position. */
#include "train/infer/decoder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/program/exec_program.h"

enum { CACHE_NAME = 32 };

/* A cache is an input that is also an output. */
typedef struct cache {
    char name[CACHE_NAME];
    int input;
} cache;

struct tti_decoder {
    tti_program program;
    tti_instance *turn[2];
    void *arena;
    void *nothing; /* zeros: initial contents, as large as the largest cache */
    size_t nothing_bytes;
    cache *caches;
    int n_caches;
    int x, pos_input;
    int32_t token, pos;
};

/* ---- the program ---- */

static tutti_status build_graph(const tutti_model *model, const tti_blueprint *b, int64_t context,
                                tutti_graph *g) {
    tutti_model_params params = b->model_params;
    if (params.context == 0) params.context = context;
    if (params.vocabulary == 0) params.vocabulary = params.n_classes;
    tutti_value *x = tutti_input(g, "x", TUTTI_I32, &TUTTI_SHAPE(1, 1));
    tutti_value *pos = tutti_input(g, "pos", TUTTI_I32, &TUTTI_SHAPE(1));
    tutti_output(g, "logits", model->decode(g, x, pos, &params));
    return tutti_graph_check(g);
}

static bool runs(const tti_node *node) { return !(node->op->traits & (TTI_SOURCE | TTI_VIEW)); }

static tutti_status make_program(tti_program *program) {
    const tutti_graph *g = program->graph;
    program->steps = calloc((size_t)g->n_nodes + 1, sizeof(tti_node *));
    program->bufs = calloc((size_t)g->n_values + 1, sizeof *program->bufs);
    if (!program->steps || !program->bufs) return tti_fail(TUTTI_E_NOMEM, "decode: out of memory");
    for (int i = 0; i < g->n_nodes; i++) {
        if (runs(g->nodes[i])) program->steps[program->n_steps++] = g->nodes[i];
        if (g->nodes[i]->op->traits & TTI_INPUT) program->n_inputs++;
    }
    return TUTTI_OK;
}

static tutti_status make_steps(tti_decoder *d, const tutti_model *model, const tti_blueprint *b,
                               int64_t context) {
    tti_target target = tti_blueprint_target(b);
    d->program.graph = tutti_graph_create(false);
    if (!d->program.graph) return tti_fail(TUTTI_E_NOMEM, "decode: out of memory");
    TTI_TRY(build_graph(model, b, context, d->program.graph));
    TTI_TRY(tti_pass_simplify(&d->program.graph, &target));
    if (target.fuse) TTI_TRY(tti_pass_fuse(&d->program.graph, &target));
    TTI_TRY(make_program(&d->program));
    return tti_plan_memory(b->plan, &d->program);
}

/* Finds the caches: every input except the token and its position is a cache. */
static tutti_status find_caches(tti_decoder *d) {
    const tutti_graph *g = d->program.graph;
    d->x = tti_program_input(&d->program, "x");
    d->pos_input = tti_program_input(&d->program, "pos");
    d->caches = calloc((size_t)d->program.n_inputs + 1, sizeof *d->caches);
    if (!d->caches) return tti_fail(TUTTI_E_NOMEM, "decode: out of memory");
    for (int i = 0; i < g->n_nodes; i++) {
        const tti_node *node = g->nodes[i];
        bool is_cache = (node->op->traits & TTI_INPUT) && tti_graph_output(g, node->name);
        if (!is_cache) continue;
        cache *c = &d->caches[d->n_caches++];
        snprintf(c->name, sizeof c->name, "%s", node->name);
        c->input = tti_program_input(&d->program, node->name);
        d->nothing_bytes = TTI_MAX(d->nothing_bytes, tti_value_n_bytes(node->out[0]));
    }
    return TUTTI_OK;
}

static tutti_status build(tti_decoder *d, const tutti_model *model, const tti_predictor *p,
                          int64_t context) {
    const tti_blueprint *b = tti_predictor_blueprint(p);
    TTI_TRY(make_steps(d, model, b, context));
    TTI_TRY(find_caches(d));
    d->arena = tti_backend_cpu.alloc(d->program.arena_bytes + 64);
    d->nothing = tti_backend_cpu.alloc(d->nothing_bytes + 64);
    if (!d->arena || !d->nothing) return tti_fail(TUTTI_E_NOMEM, "decode: out of memory");
    for (int i = 0; i < 2; i++)
        TTI_TRY(tti_instance_create(
            &(tti_instance_desc){.program = &d->program,
                                 .backend = &tti_backend_cpu,
                                 .reference = strcmp(b->config.parallel.backend, "reference") == 0,
                                 .arena = d->arena,
                                 .params = tti_predictor_params(p)},
            &d->turn[i]));
    return TUTTI_OK;
}

tutti_status tti_decoder_open(const tutti_job *job, const tti_predictor *p, int64_t context,
                              tti_decoder **out) {
    *out = NULL;
    const tutti_model *model =
        tti_job_has_model_fn(job) ? NULL : tti_job_model(tti_job_config_of(job));
    if (!model || !model->decode) return TUTTI_OK;
    tti_decoder *d = calloc(1, sizeof *d);
    if (!d) return tti_fail(TUTTI_E_NOMEM, "decode: out of memory");
    tutti_status st = build(d, model, p, context);
    if (st == TUTTI_OK)
        *out = d;
    else
        tti_decoder_close(d);
    return st;
}

void tti_decoder_close(tti_decoder *d) {
    if (!d) return;
    for (int i = 0; i < 2; i++) tti_instance_destroy(d->turn[i]);
    tti_backend_cpu.release(d->arena, d->program.arena_bytes + 64);
    tti_backend_cpu.release(d->nothing, d->nothing_bytes + 64);
    tutti_graph_destroy(d->program.graph);
    free(d->program.steps);
    free(d->program.bufs);
    free(d->caches);
    free(d);
}

/* ---- a token ---- */

void tti_decoder_restart(tti_decoder *d) { d->pos = 0; }

tutti_status tti_decoder_step(tti_decoder *d, int32_t token, const float **logits) {
    tti_instance *now = d->turn[d->pos & 1], *before = d->turn[(d->pos + 1) & 1];
    tti_run run = {.step = (uint64_t)d->pos};
    d->token = token;
    tti_instance_set_input(now, d->x, &d->token);
    tti_instance_set_input(now, d->pos_input, &d->pos);
    for (int i = 0; i < d->n_caches; i++)
        tti_instance_set_input(
            now, d->caches[i].input,
            d->pos == 0 ? d->nothing : tti_instance_output(before, d->caches[i].name));
    TTI_TRY(tti_instance_run(now, &run, NULL, NULL));
    d->pos++;
    *logits = tti_instance_output(now, "logits");
    return TUTTI_OK;
}
