# cmd_data_test.sh - tutti data: info of a job and of a text, packing and reading back, bad usage.
set -u
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail() {
    echo "cmd_data_test: $*" >&2
    exit 1
}

# expect CODE PART ARGUMENT...: exit code, and a part of the output.
expect() {
    want_code=$1 part=$2
    shift 2
    out=$("$TUTTI_PROGRAM" data "$@" 2>&1)
    code=$?
    [ "$code" -eq "$want_code" ] || fail "$*: exit code $code instead of $want_code: $out"
    case $out in *"$part"*) ;; *) fail "$*: no '$part' in: $out" ;; esac
}

i=0
while [ $i -lt 60 ]; do
    echo "First Citizen: we are accounted poor citizens, the patricians good."
    i=$((i + 1))
done >"$dir/play.txt"

expect 0 "usage: tutti data" --help
expect 2 "usage: tutti data"
expect 2 "usage: tutti data" unpack
expect 2 "no value after: --out" pack --out
expect 2 "pack needs: --out DIR" pack --text "$dir/play.txt"
expect 2 "not a number of tokens" pack --text "$dir/play.txt" --out "$dir/o" --shard-tokens x
expect 2 "data.context" info --text "$dir/play.txt" data.context=0
expect 2 "gpt2 needs data.tokenizer_dir" info --text "$dir/play.txt" --tokenizer gpt2
expect 3 "no file was found" info --text "$dir/none.txt"
expect 2 "data.format=digits cannot be packed" pack data.format=digits --out "$dir/o"

expect 0 "tokenizer   chars, 23 tokens" info --text "$dir/play.txt" data.context=16
expect 0 "x         i32 [16]" info --text "$dir/play.txt" data.context=16
expect 0 "classes     256" info --text "$dir/play.txt" --tokenizer bytes data.context=16
expect 0 "x         f32 [1,28,28]" info data.n_train=50 data.n_test=20
before=$("$TUTTI_PROGRAM" data info --text "$dir/play.txt" data.context=16 | grep -v format)

mkdir "$dir/table"
printf 'age;sex;when;y\n20,5;m;2024-01-01;no\n;f;2024-01-02;yes\n40;m;2024-01-03;no\n' \
    >"$dir/table/train.csv"
cp "$dir/table/train.csv" "$dir/table/test.csv"
table="data.format=csv data.dir=$dir/table"
expect 0 "0  number           1  age: 20.5 .. 40, mean 30.25, std 9.75" info $table
expect 0 "1  category         0  sex: f, m" info $table
expect 0 "2  date             0  when: 1704067200 .. 1704240000" info $table
expect 0 "3  label            0  y: 2 classes" info $table
expect 0 "column 'age' has no value in 1 training row; filled with the median 30.25" info $table
expect 0 "f32 [4]" info $table
expect 3 "train.csv:3: column 'age' has no value" info $table data.missing=refuse
expect 0 "1  ignore" info $table "data.columns='sex: ignore'"

expect 0 "text_val_000000.bin" pack --text "$dir/play.txt" --out "$dir/packed" --shard-tokens 1000
[ -f "$dir/packed/text_train_000003.bin" ] || fail "shards: $(ls "$dir/packed")"
after=$("$TUTTI_PROGRAM" data info data.format=tokens data.dir="$dir/packed" data.context=16 |
    grep -v format)
[ "$before" = "$after" ] || fail "packed: $after instead of: $before"
exit 0
