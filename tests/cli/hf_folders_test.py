"""hf_folders_test.py - model.init computes what transformers computes with the same folder.

Folders of tiny models are made here, one for each key of config.json and each way of storing
tensors.  Their losses are compared with those of transformers, which tests/golden/make_hf_losses.py
has written to hf_losses.json."""

import json
import os
import random
import struct
import sys

import runs

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../golden/hf_losses.json")
ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789 .,!"
LAYERS, HEADS, WIDTH, CONTEXT, N_TEXT = 2, 2, 8, 8, 1200
DATA = ["data.format=text", "data.dir=text", "data.tokenizer=chars", "data.context=%d" % CONTEXT,
        "train.batch=8", "train.steps=1", "optimizer.lr=0", "run.progress=false", "-n", "1"]


def text():
    draw = random.Random(3)
    return ALPHABET + "".join(draw.choice(ALPHABET) for _ in range(N_TEXT - len(ALPHABET)))


# ---- the folders ----

def gpt2_shapes(inner=4 * WIDTH, untied=False):
    shapes = {"transformer.wte.weight": [len(ALPHABET), WIDTH],
              "transformer.wpe.weight": [CONTEXT, WIDTH]}
    for i in range(LAYERS):
        p = "transformer.h.%d." % i
        shapes.update({
            p + "ln_1.weight": [WIDTH], p + "ln_1.bias": [WIDTH],
            p + "attn.c_attn.weight": [WIDTH, 3 * WIDTH], p + "attn.c_attn.bias": [3 * WIDTH],
            p + "attn.c_proj.weight": [WIDTH, WIDTH], p + "attn.c_proj.bias": [WIDTH],
            p + "ln_2.weight": [WIDTH], p + "ln_2.bias": [WIDTH],
            p + "mlp.c_fc.weight": [WIDTH, inner], p + "mlp.c_fc.bias": [inner],
            p + "mlp.c_proj.weight": [inner, WIDTH], p + "mlp.c_proj.bias": [WIDTH]})
    shapes.update({"transformer.ln_f.weight": [WIDTH], "transformer.ln_f.bias": [WIDTH]})
    if untied:
        shapes["lm_head.weight"] = [len(ALPHABET), WIDTH]
    return shapes


def bert_shapes(inner=4 * WIDTH, segments=2, untied=False):
    shapes = {"bert.embeddings.word_embeddings.weight": [len(ALPHABET), WIDTH],
              "bert.embeddings.position_embeddings.weight": [CONTEXT, WIDTH],
              "bert.embeddings.token_type_embeddings.weight": [segments, WIDTH]}

    def linear(name, n_in, n_out):
        shapes.update({name + ".weight": [n_out, n_in], name + ".bias": [n_out]})

    def norm(name):
        shapes.update({name + ".weight": [WIDTH], name + ".bias": [WIDTH]})

    norm("bert.embeddings.LayerNorm")
    for i in range(LAYERS):
        p = "bert.encoder.layer.%d." % i
        for part in ("query", "key", "value"):
            linear(p + "attention.self." + part, WIDTH, WIDTH)
        linear(p + "attention.output.dense", WIDTH, WIDTH)
        norm(p + "attention.output.LayerNorm")
        linear(p + "intermediate.dense", WIDTH, inner)
        linear(p + "output.dense", inner, WIDTH)
        norm(p + "output.LayerNorm")
    linear("cls.predictions.transform.dense", WIDTH, WIDTH)
    norm("cls.predictions.transform.LayerNorm")
    shapes["cls.predictions.bias"] = [len(ALPHABET)]
    if untied:
        shapes["cls.predictions.decoder.weight"] = [len(ALPHABET), WIDTH]
    return shapes


def draw_tensors(shapes):
    """name -> (shape, values): large enough that each setting changes the loss."""
    tensors = {}
    for name, shape in shapes.items():
        draw = random.Random(name)
        n = shape[0] * (shape[1] if len(shape) > 1 else 1)
        middle = 1.0 if "ln_" in name and name.endswith("weight") else 0.0
        middle = 1.0 if "LayerNorm.weight" in name else middle
        tensors[name] = (shape, [middle + draw.random() - 0.5 for _ in range(n)])
    return tensors


def to_bytes(dtype, values):
    if dtype == "BF16":  # cut off, which is a value of its own
        return b"".join(struct.pack("<f", x)[2:] for x in values)
    letter = {"F32": "f", "F64": "d", "F16": "e"}[dtype]
    return struct.pack("<%d%s" % (len(values), letter), *values)


def save(folder, config, tensors, dtype="F32", extra=(), metadata=None):
    """extra: (name, dtype, shape, bytes) of further tensors."""
    os.makedirs(folder, exist_ok=True)
    header, body = {"__metadata__": dict({"format": "pt"}, **(metadata or {}))}, b""
    stored = [(name, dtype, shape, to_bytes(dtype, v)) for name, (shape, v) in tensors.items()]
    for name, kind, shape, data in stored + list(extra):
        header[name] = {"dtype": kind, "shape": shape,
                        "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    head = json.dumps(header).encode()
    with open(folder + "/model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(head)) + head + body)
    if config is not None:
        with open(folder + "/config.json", "w") as file:
            json.dump(config, file)


GPT2 = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": len(ALPHABET),
        "n_positions": CONTEXT, "n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS,
        "bos_token_id": None, "eos_token_id": None, "resid_pdrop": 0.1}
BERT = {"model_type": "bert", "architectures": ["BertForMaskedLM"], "vocab_size": len(ALPHABET),
        "max_position_embeddings": CONTEXT, "hidden_size": WIDTH, "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS, "intermediate_size": 4 * WIDTH}
MASKS = [("transformer.h.%d.attn.bias" % i, "BOOL", [1, 1, 2, 2], b"\1\0\1\1")
         for i in range(LAYERS)] + [("transformer.h.0.attn.masked_bias", "F32", [], b"\0\0\0\0")]


def folders():
    """name -> (config, tensors, more arguments of save), all of which must load."""
    gpt2, bert = draw_tensors(gpt2_shapes()), draw_tensors(bert_shapes())
    untied = draw_tensors(gpt2_shapes(untied=True))
    made = {"gpt2": (GPT2, gpt2, {}), "bert": (BERT, bert, {})}
    for name, change in {
            "relu": {"activation_function": "relu"}, "gelu": {"activation_function": "gelu"},
            "silu": {"activation_function": "silu"}, "swish": {"activation_function": "swish"},
            "tanh": {"activation_function": "tanh"},
            "gelu_pytorch_tanh": {"activation_function": "gelu_pytorch_tanh"},
            "epsilon": {"layer_norm_epsilon": 0.1}, "unscaled": {"scale_attn_weights": False},
            "by_layer": {"scale_attn_by_inverse_layer_idx": True},
            "both": {"scale_attn_by_inverse_layer_idx": True, "scale_attn_weights": False},
            "upcast": {"reorder_and_upcast_attn": True}}.items():
        made["gpt2-" + name] = (dict(GPT2, **change), gpt2, {})
    for name, change in {"relu": {"hidden_act": "relu"}, "gelu_new": {"hidden_act": "gelu_new"},
                         "epsilon": {"layer_norm_eps": 0.1}}.items():
        made["bert-" + name] = (dict(BERT, **change), bert, {})
    made["gpt2-inner"] = (dict(GPT2, n_inner=12), draw_tensors(gpt2_shapes(inner=12)), {})
    made["bert-inner"] = (dict(BERT, intermediate_size=12), draw_tensors(bert_shapes(inner=12)), {})
    made["bert-segments"] = (dict(BERT, type_vocab_size=3), draw_tensors(bert_shapes(segments=3)),
                             {})
    made["gpt2-untied"] = (dict(GPT2, tie_word_embeddings=False), untied, {})
    made["gpt2-untied-in-the-file-alone"] = (GPT2, untied, {})
    own = draw_tensors(bert_shapes(untied=True))
    own["cls.predictions.decoder.bias"] = own["cls.predictions.bias"]
    made["bert-untied"] = (dict(BERT, tie_word_embeddings=False), own, {})
    for dtype in ("F64", "F16", "BF16"):
        made["gpt2-" + dtype] = (GPT2, gpt2, {"dtype": dtype})
    made["gpt2-masks"] = (GPT2, gpt2, {"extra": MASKS})
    alias = dict(gpt2)
    alias["lm_head.weight"] = alias.pop("transformer.wte.weight")
    made["gpt2-alias"] = (GPT2, alias, {"metadata": {"transformer.wte.weight": "lm_head.weight"}})
    return made


# ---- tests ----

def begin():
    with open("text", "w") as file:
        file.write(text())


def train(name, *more):
    return runs.tutti("train", "model.name=" + name.split("-")[0], *DATA, "model.init=" + name,
                      "run.dir=run-" + name, *more)


def loss_of(name):
    return runs.records("run-" + name)[-1]["loss"]


def expect_loss(name, wanted):
    if abs(loss_of(name) - wanted) > 2e-5:
        raise AssertionError("%s: loss %.6f instead of %.6f" % (name, loss_of(name), wanted))


def test_losses_of_transformers():
    begin()
    with open(GOLDEN) as file:
        golden = json.load(file)
    for name, (config, tensors, how) in folders().items():
        save(name, config, tensors, **how)
        train(name).expect(0)
        expect_loss(name, golden[name])


def test_exports_keep_the_settings():
    """What a folder asked for is in the config.json of the export, which gives the same loss."""
    begin()
    with open(GOLDEN) as file:
        golden = json.load(file)
    for name in ("gpt2-relu", "gpt2-both", "gpt2-inner", "gpt2-untied", "bert-epsilon",
                 "bert-untied", "bert-segments"):
        config, tensors, how = folders()[name]
        save(name, config, tensors, **how)
        train(name).expect(0)
        again = name + "-again"
        runs.tutti("export", "run-" + name, "--format", "hf", "--out", again).expect(0)
        train(again).expect(0)
        expect_loss(again, golden[name])
        with open(again + "/tokenizer.json") as file:
            if json.load(file)["model"]["vocab"]["b"] != sorted(ALPHABET).index("b"):
                raise AssertionError("tokenizer.json")


def test_without_config_the_tensors_decide():
    begin()
    with open(GOLDEN) as file:
        golden = json.load(file)
    _, tensors, _ = folders()["gpt2-untied"]
    save("gpt2-x", None, tensors)
    train("gpt2-x").expect(2, "gpt2-x does not say how many attention heads", "model.heads")
    train("gpt2-x", "model.heads=2").expect(0)
    expect_loss("gpt2-x", golden["gpt2-untied"])


def test_refused_settings():
    begin()
    gpt2, bert = draw_tensors(gpt2_shapes()), draw_tensors(bert_shapes())
    for name, key, value, said in (
            ("gpt2-a", "activation_function", "quick_gelu", "supports: gelu"),
            ("gpt2-b", "layer_norm_epsilon", "small", "supports: above 0"),
            ("gpt2-c", "add_cross_attention", True, "supports: false"),
            ("gpt2-d", "rope_theta", 10000, "is not known for gpt2"),
            ("gpt2-e", "quantization_config", {"bits": 4}, "not quantized"),
            ("gpt2-f", "model_type", "gpt_neo", "loads \"gpt2\""),
            ("gpt2-g", "n_head", 0, "supports: 1 or more"),
            ("gpt2-h", "n_layer", 1 << 40, "model.layers must be from"),
            ("bert-a", "position_embedding_type", "relative_key", "supports: absolute"),
            ("bert-b", "is_decoder", True, "supports: false"),
            ("bert-c", "hidden_act", "mish", "supports: gelu")):
        config = dict(GPT2 if name[0] == "g" else BERT, **{key: value})
        save(name, config, gpt2 if name[0] == "g" else bert)
        train(name).expect(2, name + "/config.json", '"%s"' % key, said)
    for given in ("model.activation=gelu", "model.norm_eps=0.001", "model.tied=no",
                  "model.attention_scaled=no", "model.mlp_width=16"):
        save("gpt2-i", dict(GPT2, n_inner=32), gpt2)
        train("gpt2-i", given).expect(2, "gpt2-i/config.json", "the job says " + given)


def test_damaged_folders():
    """Exit code 4: a file of weights or of a model that is damaged or incomplete."""
    begin()
    gpt2 = draw_tensors(gpt2_shapes())
    save("gpt2-a", dict(GPT2, tie_word_embeddings=False), gpt2)
    train("gpt2-a").expect(4, "lm_head.weight is missing")
    save("gpt2-b", GPT2, gpt2, extra=[("score.weight", "F32", [1], b"\0\0\0\0")])
    train("gpt2-b").expect(4, "score.weight is not in the model")
    save("gpt2-c", GPT2, gpt2, extra=[("x", "Q4_K", [1], b"\0")])
    train("gpt2-c").expect(4, "tensor 'x': its dtype")
    save("gpt2-d", GPT2, {k: v for k, v in gpt2.items() if "wte" not in k},
         extra=[("transformer.wte.weight", "I8", [len(ALPHABET), WIDTH],
                 b"\0" * (len(ALPHABET) * WIDTH))])
    train("gpt2-d").expect(4, "transformer.wte.weight", "I8")
    save("gpt2-e", GPT2, gpt2)
    with open("gpt2-e/model.safetensors.index.json", "w") as file:
        json.dump({"weight_map": {"transformer.wte.weight": "model-2.safetensors"}}, file)
    train("gpt2-e").expect(4, "names 'model-2.safetensors', which is not in the folder")
    save("gpt2-f", GPT2, gpt2)
    with open("gpt2-f/config.json", "w") as file:
        file.write('{"n_layer": ')
    train("gpt2-f").expect(4, "config.json", "not valid JSON")


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
