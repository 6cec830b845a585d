/* bucket_test.c - slots in order of readiness, buckets over them. */
#include "passes/nets.h"

#include <stdio.h>

static const tti_target *const targets[] = {&net_plain, &net_fast};

/* The value that ends as the gradient of a slot, and the last step that touches its bytes. */
static const tutti_value *gradient_of(const tti_plan *plan, int slot) {
    char name[64];
    snprintf(name, sizeof name, "grad.%s", plan->slots[slot].param->name);
    return tti_graph_output(plan->shard.graph, name);
}

static bool touches(const tti_plan *plan, const tti_node *node, tti_buf buf) {
    const tti_buf *bufs = plan->shard.bufs;
    for (int i = 0; i < node->n_in; i++)
        if (bufs[node->in[i]->id].space == buf.space && bufs[node->in[i]->id].offset == buf.offset)
            return true;
    for (int k = 0; k < node->op->n_out; k++)
        if (bufs[node->out[k]->id].space == buf.space &&
            bufs[node->out[k]->id].offset == buf.offset)
            return true;
    return false;
}

static void check_slots(const tti_plan *plan) {
    size_t n_flat = 0, n_params = 0;
    for (int i = 0; i < plan->n_slots; i++) {
        const tti_slot *slot = &plan->slots[i];
        T_EQ(slot->first, n_flat);
        T_EQ(slot->first % 16, 0);
        T_EQ(slot->n_elems, tti_value_n_elems(slot->param->out[0]));
        n_flat += (slot->n_elems + 15) / 16 * 16;
        n_params += slot->n_elems;
        if (i > 0) assert_true(slot[-1].ready_after <= slot->ready_after);
        tti_buf buf = plan->shard.bufs[gradient_of(plan, i)->id];
        T_EQ(buf.space, TTI_SPACE_GRAD);
        T_EQ(buf.offset, slot->first * sizeof(float));
        int last = -1;
        for (int s = 0; s < plan->shard.n_steps; s++)
            if (touches(plan, plan->shard.steps[s], buf)) last = s;
        T_EQ(slot->ready_after, last); /* not before: the reduction would race with the reader */
    }
    T_EQ(plan->n_flat, n_flat);
    T_EQ(plan->n_params, n_params);
}

static void check_buckets(const tti_plan *plan, size_t bucket_bytes) {
    size_t first = 0;
    for (int b = 0; b < plan->n_buckets; b++) {
        const tti_bucket *bucket = &plan->buckets[b];
        T_EQ(bucket->first, first);
        first += bucket->n_elems;
        assert_true(bucket->n_elems > 0);
        if (b + 1 < plan->n_buckets) assert_true(bucket->n_elems * 4 >= bucket_bytes);
        int ready = -1, n_slots = 0;
        size_t last_slot_elems = 0;
        for (int i = 0; i < plan->n_slots; i++) {
            const tti_slot *slot = &plan->slots[i];
            if (slot->first < bucket->first || slot->first >= first) continue;
            assert_true(slot->first + slot->n_elems <= first); /* no slot is torn */
            ready = TTI_MAX(ready, slot->ready_after);
            last_slot_elems = (slot->n_elems + 15) / 16 * 16;
            n_slots++;
        }
        assert_true(n_slots > 0);
        T_EQ(bucket->ready_after, ready);
        /* and without its last slot it would be too small: as many buckets as the size allows */
        assert_true((bucket->n_elems - last_slot_elems) * 4 < bucket_bytes);
    }
    T_EQ(first, plan->n_flat);
}

T_CASE(buckets_cover_all_slots_in_order) {
    T_UNUSED;
    static const size_t sizes[] = {1, 64, 200, 1000, 1 << 20};
    for (size_t n = 0; n < TTI_COUNT(net_all); n++)
        for (size_t t = 0; t < TTI_COUNT(targets); t++)
            for (size_t s = 0; s < TTI_COUNT(sizes); s++) {
                tti_plan *plan = net_plan(net_all[n], targets[t], sizes[s]);
                check_slots(plan);
                check_buckets(plan, sizes[s]);
                if (sizes[s] == 1) T_EQ(plan->n_buckets, plan->n_slots);
                if (sizes[s] == 1 << 20) T_EQ(plan->n_buckets, 1);
                tti_plan_destroy(plan);
            }
}

/* Checkpoints and the hash rely on this. */
T_CASE(the_order_does_not_depend_on_the_bucket_size) {
    T_UNUSED;
    tti_plan *a = net_plan(net_lenet, &net_fast, 1), *b = net_plan(net_lenet, &net_fast, 1 << 20);
    T_EQ(a->n_slots, 8);
    for (int i = 0; i < a->n_slots; i++) {
        assert_string_equal(a->slots[i].param->name, b->slots[i].param->name);
        T_EQ(a->slots[i].first, b->slots[i].first);
    }
    assert_string_equal(a->slots[0].param->name, "fc2.weight"); /* the last layer is first ready */
    assert_string_equal(a->slots[7].param->name, "conv1.bias");
    tti_plan_destroy(a);
    tti_plan_destroy(b);
}

/* a, b and the nodes between share one gradient: a node reads a slot after it was written. */
T_CASE(a_shared_gradient_is_ready_after_its_last_reader) {
    T_UNUSED;
    tti_plan *plan = net_plan(net_knots, &net_plain, 1);
    int n_late = 0;
    for (int i = 0; i < plan->n_slots; i++) {
        const tti_node *maker = gradient_of(plan, i)->node;
        n_late += plan->shard.steps[plan->slots[i].ready_after] != maker;
    }
    assert_true(n_late > 0);
    tti_plan_destroy(plan);
}

T_CASE(decay_is_as_the_parameter_says) {
    T_UNUSED;
    tti_plan *plan = net_plan(net_lenet, &net_plain, 1 << 20);
    for (int i = 0; i < plan->n_slots; i++)
        T_EQ(plan->slots[i].decay, strstr(plan->slots[i].param->name, ".weight") != NULL);
    tti_plan_destroy(plan);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buckets_cover_all_slots_in_order),
        cmocka_unit_test(the_order_does_not_depend_on_the_bucket_size),
        cmocka_unit_test(a_shared_gradient_is_ready_after_its_last_reader),
        cmocka_unit_test(decay_is_as_the_parameter_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
