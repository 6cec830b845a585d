/* models_losses.h - losses of ten training steps of model families, by PyTorch 1.13.0a0 in float32.
 *
 * Generated: python3 tests/golden/make_models.py > tests/golden/models_losses.h
 * That script says how weights and data are made from Philox. */
#ifndef TTI_TESTS_GOLDEN_MODELS_LOSSES_H
#define TTI_TESTS_GOLDEN_MODELS_LOSSES_H

enum { MODELS_BATCH = 8, MODELS_VOCABULARY = 50, MODELS_TOKENS = 16, MODELS_WIDTH = 32 };
enum { MODELS_STEPS = 10 };

typedef struct models_case {
    const char *model, *optimizer;
    double lr, momentum, weight_decay; /* decay: of what has two dimensions or more */
    long n_params;                     /* elements of all parameters */
    double spread;                     /* largest relative difference to the run in float64 */
    double loss[MODELS_STEPS];         /* mean over labels, before the update */
} models_case;

/* clang-format off */
static const models_case models_cases[] = {
    {"resnet18", "sgd", 2e-05, 0.9, 0.0005, 11173962, 1.2e-05,
     {2.54163647, 2.46733999, 2.44397902, 2.36322355, 2.27540803,
      2.18551731, 2.06317115, 1.96503448, 1.83507264, 1.72816718}},
    {"gpt2", "adamw", 0.001, 0.0, 0.01, 27712, 9.8e-08,
     {4.302495, 4.38691568, 4.04169226, 4.18723726, 3.88617945,
      4.02864647, 3.75019336, 3.88460064, 3.62301874, 3.7496767}},
    {"bert", "adamw", 0.001, 0.0, 0.01, 28818, 1.1e-07,
     {4.38305521, 4.37638617, 4.04825449, 4.15568161, 3.96165299,
      4.02759218, 3.91684103, 3.93565345, 3.8728435, 3.86374307}},
    {"lstm", "sgd", 0.3, 0.9, 0.0005, 20146, 6.3e-08,
     {3.91272902, 3.91614366, 3.90423274, 3.90551853, 3.88952971,
      3.88882518, 3.87247682, 3.86884713, 3.85594082, 3.84731412}},
};
/* clang-format on */

#endif /* TTI_TESTS_GOLDEN_MODELS_LOSSES_H */
