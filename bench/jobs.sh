# jobs.sh - the jobs that cpu.sh, gpu.sh and compare.sh time.  They source it.
# shellcheck shell=sh

# cpu_job NAME FOLDER: the model and its keys.  FOLDER has what make_text has written.
cpu_job() {
    case $1 in
    mlp) echo mlp train.batch=128 train.steps=2000 ;;
    cnn) echo lenet train.batch=128 train.steps=400 ;;
    gpt) echo gpt2 train.batch=32 train.steps=40 model.layers=4 model.heads=4 model.width=128 \
        model.dropout=0 data.format=text "data.dir=$2/text.txt" data.tokenizer=chars \
        data.context=128 ;;
    resnet18) echo resnet18 train.batch=64 train.steps=12 model.stem=cifar \
        data.format=random_images data.image_size=32 data.classes=10 data.n_train=2048 \
        data.n_test=128 ;;
    *) return 1 ;;
    esac
}

# make_text FOLDER: random text of 65 different characters.
make_text() {
    awk 'BEGIN {srand(1); for (i = 0; i < 400000; i++) printf "%c", 48 + int(65 * rand())}' \
        > "$1/text.txt"
}

# gpu_job NAME: the model and its keys.  train.batch and data.threads are those of one GPU.
# train.low_stream is the former name of train.low_precision_residual, for builds of before.
gpu_job() {
    case $1 in
    gpt2) echo gpt2 model.size=124M model.context=1024 data.format=random_tokens data.context=1024 \
        data.vocabulary=50304 data.n_test=64 train.batch=64 train.steps=80 train.clip_norm=1 \
        train.low_stream=true optimizer.name=adamw optimizer.weight_decay=0.1 data.threads=4 ;;
    gpt2-350m) echo gpt2 model.size=355M model.context=1024 data.format=random_tokens \
        data.context=1024 data.vocabulary=50304 data.n_test=32 train.batch=32 train.steps=40 \
        train.clip_norm=1 train.low_stream=true optimizer.name=adamw data.threads=4 \
        optimizer.weight_decay=0.1 ;;
    resnet50) echo resnet50 data.format=random_images data.image_size=224 data.n_test=256 \
        train.batch=256 train.steps=120 optimizer.name=sgd optimizer.lr=0.1 data.threads=14 \
        optimizer.weight_decay=1e-4 data.prefetch=3 ;;
    bert) echo bert model.size=base model.context=512 data.format=random_tokens data.context=512 \
        data.vocabulary=30528 data.n_test=64 train.batch=64 train.steps=80 optimizer.name=adamw \
        train.low_stream=true optimizer.lr=1e-4 data.threads=4 ;;
    small) echo lenet data.format=digits data.n_train=60000 train.batch=128 train.steps=8000 \
        train.precision=tf32 optimizer.name=adam data.threads=8 ;;
    *) return 1 ;;
    esac
}
