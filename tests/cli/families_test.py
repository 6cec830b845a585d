"""families_test.py - vit, convnext, swin and unet: one story for replicas, threads and processes,
ZeRO-3 and a pipeline; weights of timm, Hugging Face and torchvision by their names; masks."""

import json
import os
import struct
import sys

import layouts
import masks_test
import runs

FEW = ["train.batch=8", "train.steps=3", "optimizer.name=adamw", "optimizer.lr=1e-3",
       "parallel.shards=4", "run.log_every=1", "run.checkpoint_every=-1"]
IMAGES = ["data.format=random_images", "data.image_size=32", "data.n_train=32", "data.n_test=8"]
RANDOM = ["model.dropout=0.1", "model.drop_path=0.3"]
MODELS = {
    "vit": ["model.patch=8", "model.layers=2", "model.heads=2", "model.width=32", *RANDOM, *IMAGES],
    "convnext": ["model.depths=[1,1,2,1]", "model.width=16", *RANDOM, *IMAGES],
    "swin": ["model.depths=[2,2,1,1]", "model.width=16", "model.heads=2", "model.window=4", *RANDOM,
             *IMAGES],
    "unet": ["model.width=4", "model.layers=3", "model.dropout=0.1", "data.format=masks",
             "data.dir=scenes", "data.image_size=16"],
}
LAYOUTS = (("2", "parallel.place=processes"), ("4", "parallel.zero=3"),
           ("2", "parallel.pipeline=2"), ("4",), ("4", "parallel.pipeline=2"), ("2",))


def train(run, model, *arguments):
    return runs.tutti("train", "run.dir=" + run, "model.name=" + model, *MODELS[model], *FEW,
                      *arguments)


def one_story(layouts_of):
    """layouts_of: those of model number i."""
    masks_test.make("scenes")
    for number, model in enumerate(MODELS):
        train(model, model, "-n", "1").expect(0)
        story = runs.story(model)
        for i, (n_workers, *keys) in enumerate(layouts_of(number)):
            run = "%s-%d" % (model, i)
            train(run, model, "-n", n_workers, *keys).expect(0)
            runs.same_story(story, run)


def test_one_story():
    """Three layouts for each model, every layout for two models; all of them:
    families_slow_test.py."""
    n = len(LAYOUTS)
    one_story(lambda number: [LAYOUTS[(3 * number + i) % n] for i in range(3)])


# ---- names of weights ----

def save(path, tensors):
    """{name: (shape, floats)} as a safetensors file."""
    header, body = {}, b""
    for name, (shape, floats) in tensors.items():
        data = floats.tobytes()
        header[name] = {"dtype": "F32", "shape": list(shape),
                        "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + body)


def renamed(tensors, replacements):
    out = {}
    for name, value in tensors.items():
        for ours, theirs in replacements:
            name = name.replace(ours, theirs, 1)
        out[name] = value
    return out


def divided(tensors, part, names):
    """Each tensor with this part in its name becomes three."""
    out = {}
    for name, (shape, floats) in tensors.items():
        if part not in name:
            out[name] = (shape, floats)
            continue
        n = len(floats) // 3
        for i, other in enumerate(names):
            out[name.replace(part, other)] = ((shape[0] // 3, *shape[1:]),
                                              floats[i * n:(i + 1) * n])
    return out


TIMM = {
    "vit": [("class_token", "cls_token"), ("encoder.pos_embedding", "pos_embed"),
            ("conv_proj.", "patch_embed.proj."), ("encoder.layers.encoder_layer_", "blocks."),
            ("encoder.ln.", "norm."), ("heads.head.", "head."), ("ln_1", "norm1"),
            ("ln_2", "norm2"), ("self_attention.in_proj_", "attn.qkv."),
            ("self_attention.out_proj", "attn.proj"), ("mlp.0", "mlp.fc1"), ("mlp.3", "mlp.fc2")],
    "convnext": [("features.0.", "stem."), ("classifier.0", "head.norm"),
                 ("classifier.2", "head.fc"), ("layer_scale", "gamma"), ("block.0", "conv_dw"),
                 ("block.2", "norm"), ("block.3", "mlp.fc1"), ("block.5", "mlp.fc2")] +
                [("features.%d." % (2 * s + 1), "stages.%d.blocks." % s) for s in range(4)] +
                [("features.%d." % (2 * s), "stages.%d.downsample." % s) for s in range(1, 4)],
    "swin": [("features.0.0", "patch_embed.proj"), ("features.0.2", "patch_embed.norm"),
             ("head.", "head.fc."), ("mlp.0", "mlp.fc1"), ("mlp.3", "mlp.fc2")] +
            [("features.%d." % (2 * s + 1), "layers.%d.blocks." % s) for s in range(4)] +
            [("features.%d." % (2 * s), "layers.%d.downsample." % s) for s in range(1, 4)],
}


def weights_of(run):
    path = os.path.join(runs.newest_checkpoint(run), "model.safetensors")
    return layouts.tensors(path)


def expect_same_start(run, model, init, *keys):
    """A run from init that learns nothing has the tensors of the run."""
    other = "from-" + os.path.basename(init)
    runs.tutti("train", "run.dir=" + other, "model.name=" + model, "model.init=" + init, *FEW,
               "train.steps=1", "optimizer.lr=1e-12", *(keys or MODELS[model])).expect(0)
    want, got = weights_of(run), weights_of(other)
    assert want.keys() == got.keys(), (model, init)
    for name, (shape, floats) in want.items():
        assert got[name][0] == shape, (init, name)
        assert all(abs(a - b) < 1e-9 for a, b in zip(floats, got[name][1])), (init, name)


def test_names_of_timm():
    for model, replacements in TIMM.items():
        train("as-" + model, model, "train.steps=1").expect(0)
        tensors = renamed(weights_of("as-" + model), replacements)
        if model == "convnext":
            tensors = {name: ((shape[0],), floats) if "gamma" in name else (shape, floats)
                       for name, (shape, floats) in tensors.items()}
        if model == "swin":
            index = "layers.0.blocks.0.attn.relative_position_index"
            tensors[index] = ((1,), tensors["norm.bias"][1][:1])
        save(model + "-timm.safetensors", tensors)
        expect_same_start("as-" + model, model, model + "-timm.safetensors")


def test_folder_of_hugging_face():
    train("plain", "vit", "model.norm_eps=1e-12", "train.steps=1").expect(0)
    tensors = renamed(weights_of("plain"), [
        ("class_token", "vit.embeddings.cls_token"), ("heads.head.", "classifier."),
        ("encoder.pos_embedding", "vit.embeddings.position_embeddings"),
        ("conv_proj.", "vit.embeddings.patch_embeddings.projection."),
        ("encoder.layers.encoder_layer_", "vit.encoder.layer."), ("encoder.ln.", "vit.layernorm."),
        ("ln_1", "layernorm_before"), ("ln_2", "layernorm_after"),
        ("self_attention.in_proj_", "QKV."), ("self_attention.out_proj", "attention.output.dense"),
        ("mlp.0", "intermediate.dense"), ("mlp.3", "output.dense")])
    os.mkdir("hf")
    save("hf/model.safetensors", divided(tensors, "QKV", [
        "attention.attention." + part for part in ("query", "key", "value")]))
    config = {"model_type": "vit", "hidden_size": 32, "num_hidden_layers": 2,
              "num_attention_heads": 2, "intermediate_size": 128, "patch_size": 8,
              "image_size": 32, "hidden_act": "gelu", "layer_norm_eps": 1e-12, "qkv_bias": True}
    with open("hf/config.json", "w") as file:
        json.dump(config, file)
    expect_same_start("plain", "vit", "hf", *RANDOM, *IMAGES)
    for changes, text in (({"hidden_act": "quick_gelu"}, "\"hidden_act\" is \"quick_gelu\""),
                          ({"model_type": "deit"}, "loads \"vit\""),
                          ({"layerscale": 1}, "the key \"layerscale\"")):
        with open("hf/config.json", "w") as file:
            json.dump({**config, **changes}, file)
        train("other", "vit", "model.init=hf").expect(2, text)
    config = {"model_type": "swin", "embed_dim": 16, "depths": [2, 2, 1, 1], "window_size": 4,
              "num_heads": [2, 4, 8, 16], "layer_norm_eps": 1e-5}
    for changes, text in (({"depths": [2, 2, 1]}, "supports: four numbers from 1 to 1000"),
                          ({"depths": [2, 2, 5000, 1]}, "supports: four numbers"),
                          ({"num_heads": [2, 4, 4, 8]}, "supports: numbers that double"),
                          ({"layer_norm_eps": 1e-6}, "supports: 1e-5"),
                          ({"use_absolute_embeddings": True}, "supports: false")):
        with open("hf/config.json", "w") as file:
            json.dump({**config, **changes}, file)
        train("other", "swin", "model.init=hf").expect(2, text)
    with open("hf/config.json", "w") as file:
        json.dump({"architecture": "vit_base_patch16_clip_quickgelu_224"}, file)
    train("other", "vit", "model.init=hf").expect(2, "does not compute")


def test_torchvision_and_another_head():
    train("trained", "swin").expect(0)
    runs.tutti("export", "trained", "--format", "torchvision", "--out", "tv").expect(0)
    path = "tv/model.safetensors"
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        entry = header["features.1.0.attn.relative_position_index"]
        file.seek(8 + struct.unpack("<Q", open(path, "rb").read(8))[0] + entry["data_offsets"][0])
        index = struct.unpack("<256q", file.read(8 * 256))
    assert (entry["dtype"], entry["shape"]) == ("I64", [256]), entry
    assert (index[0], index[1], index[16], index[255], index[15]) == (24, 23, 25, 24, 0), index
    expect_same_start("trained", "swin", "tv")
    more = ["model.init=tv", "data.classes=7", "train.steps=1"]
    train("refused", "swin", *more).expect(4, "head.weight has f32[1000,128], the model f32[7,128]",
                                           'give model.init_except="[head.*]"')
    train("head", "swin", *more, "model.init_except=head.*").expect(0)


def test_choices_of_other_models():
    for model, key, text in (("convnext", "model.patch=8", "model.patch: convnext does not have"),
                             ("vit", "model.depths=[1,1,1,1]", "model.depths: vit does not have"),
                             ("vit", "model.window=4", "model.window: vit"),
                             ("swin", "model.upsample=bilinear", "model.upsample=bilinear: swin"),
                             ("swin", "model.layers=4", "give model.depths"),
                             ("vit", "model.stem=cifar", "give a smaller model.patch"),
                             ("convnext", "model.depths=[1,2]", "4 numbers are needed")):
        train("bad", model, key).expect(2, text)


# ---- masks ----

def test_unet_learns_masks():
    masks_test.make("learned", 24)
    job = masks_test.job("learned", "model.name=unet", "model.width=8", "model.layers=2")
    runs.tutti("train", "run.dir=classes", "train.steps=60", "data.augment=none", *job).expect(0)
    assert float(runs.records("classes")[-1]["accuracy"]) > 0.93
    masks_test.make("two", 16, values=(0, 1, 1))
    job = masks_test.job("two", "model.name=unet", "model.width=8", "model.layers=2",
                         "model.upsample=bilinear", "train.loss=bce")
    runs.tutti("train", "run.dir=question", "train.steps=60", "data.augment=none", *job).expect(0)
    shown, = masks_test.predictions("question", "learned/images/1.png", "--out", "drawn")
    assert (shown["height"], shown["width"]) == (masks_test.SIDE, masks_test.WIDE), shown
    drawn = [v for row in masks_test.read_grey("drawn/1.png") for v in row]
    wanted = [v > 0 for row in masks_test.scene(1) for v in row]
    right = sum((a > 0) == b for a, b in zip(drawn, wanted))
    assert right > 0.85 * len(wanted), right
    for name in ("classes", "question"):
        runs.tutti("export", name, "--format", "onnx", "--out", name + ".onnx").expect(0)


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
