/* models_losses.h - losses of ten training steps of model families, by PyTorch 2.15.0+cu132 in
 * float32.
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
    {"resnet18", "sgd", 2e-05, 0.9, 0.0005, 11173962, 1.1e-05,
     {2.54163671, 2.46734023, 2.4439795, 2.36322379, 2.27540803,
      2.18551731, 2.06317115, 1.96503472, 1.83507407, 1.72816789}},
    {"gpt2", "adamw", 0.001, 0.0, 0.01, 27712, 1.6e-07,
     {4.302495, 4.38691616, 4.04169226, 4.18723726, 3.88617969,
      4.02864647, 3.75019312, 3.88460088, 3.6230185, 3.74967623}},
    {"bert", "adamw", 0.001, 0.0, 0.01, 28818, 1.2e-07,
     {4.38305521, 4.37638617, 4.04825449, 4.15568161, 3.96165299,
      4.02759218, 3.91684055, 3.93565392, 3.87284398, 3.86374331}},
    {"lstm", "sgd", 0.3, 0.9, 0.0005, 20146, 6.3e-08,
     {3.91272902, 3.91614366, 3.90423274, 3.90551853, 3.88952971,
      3.88882518, 3.87247682, 3.86884713, 3.85594082, 3.84731436}},
    {"vit", "sgd", 0.05, 0.9, 0.0, 24234, 4.6e-07,
     {3.26754808, 2.20020986, 1.35874653, 1.28345478, 0.99233532,
      0.569629192, 0.522270799, 0.24482502, 0.231343448, 0.114906512}},
    {"convnext", "sgd", 0.05, 0.9, 0.0, 72690, 1.8e-06,
     {2.66993356, 2.1047473, 0.403687358, 0.307653844, 0.215000108,
      0.0917663872, 0.0798882097, 0.0442955643, 0.0267979838, 0.0219073482}},
    {"swin", "sgd", 0.05, 0.9, 0.0, 513258, 4.9e-06,
     {2.62189269, 2.75527906, 0.12286479, 0.973352194, 0.121492803,
      0.0747129023, 0.11725615, 0.0079105068, 0.0299809705, 0.00600955449}},
    {"unet", "sgd", 0.05, 0.9, 0.0, 7594, 1.3e-07,
     {2.46732044, 2.43169379, 2.43957877, 2.40018988, 2.39838481,
      2.36241627, 2.35865021, 2.32958198, 2.32576632, 2.30500674}},
};
/* clang-format on */

#endif /* TTI_TESTS_GOLDEN_MODELS_LOSSES_H */
