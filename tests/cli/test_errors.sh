#!/usr/bin/env bash
# Bad input: one line on stderr that says what and where, status 2, nothing half-written.
. "$(dirname "$0")/lib.sh"

check() { # PATTERN COMMAND...: an extended expression of the whole line behind "error: "
    local pattern=$1
    shift
    run 2 "$sonde" "$@"
    [ "$(wc -l <"$err")" -eq 1 ] || fail "$*: not one line: $(cat "$err")"
    grep -qE "^sonde: error: $pattern\$" "$err" || fail "$*: $(cat "$err")"
    [ ! -e out ] || fail "$*: half-made: $(find out)"
}

run 0 "$sonde" data synth --out data --train 200 --test 60 --quiet
[ ! -s "$out" ] || fail "--quiet is not quiet"
run 0 "$sonde" train --data data --out good --epochs 1 --quiet --no-pictures --no-eval

# folders and files that are not there, or not to be written
: >file
check 'file: cannot create the folder: .*' train --data data --out file
check '/dev/null/x: cannot create the folder: .*' train --data data --out /dev/null/x
check 'fashion-mnist: not found in nowhere: there is no such folder \(expected the folder of the data set\)' \
    train --data nowhere --out out
: >empty.png
check 'empty\.png: is empty \(expected a PNG or JPEG image\)' predict --weights good/model.safetensors empty.png
check 'nowhere\.safetensors: .*No such file.*' eval --weights nowhere.safetensors --data data
check 'nowhere\.safetensors: .*No such file.*' train --data data --out out \
    --resume nowhere.safetensors
check 'nowhere\.jpg: .*No such file.*' predict --weights good/model.safetensors nowhere.jpg
check "data set: no data set is called 'fashion-minst' \(expected fashion-mnist\)" data info fashion-minst --data data

# jobs
printf 'model: fashion_cnn\noptions:\n  epohcs: 3\n' >job.yaml
check "job\.yaml:3: unknown key 'epohcs' \(expected epochs\)" train job.yaml --data data --out out
printf 'model: fashion_cnn\nobserve: [{tensors: conv1.wieght}]\n' >job.yaml
check ".*'conv1\.wieght'.*conv1\.weight.*" train job.yaml --data data --out out
check ".*'fc3.weight'.*" train --data data --out out --print fc3.weight
printf 'model: {input: [3, 28, 28], layers: [flatten, linear: {name: a, out_features: 10}], loss: cross_entropy}\ndata: fashion-synth\n' >job.yaml
check '.*: samples of \(1, 28, 28\) \(expected \(3, 28, 28\)\)' train job.yaml --data data --out out
printf 'model: {input: [1, 28, 28], layers: [flatten, linear: {name: a, out_features: 9}], loss: cross_entropy}\ndata: fashion-synth\n' >job.yaml
check ".*: 10 classes \(expected at most the model's 9\)" train job.yaml --data data --out out

# data that is cut, or foreign
mkdir cut
cp data/* cut
truncate -s 3000 cut/train-images-idx3-ubyte.gz
check 'cut/train-images-idx3-ubyte\.gz: corrupt gzip stream at byte 0 of 3000: .*' \
    train --data cut --out out
gunzip -c data/train-images-idx3-ubyte.gz | head -c 5000 | gzip >cut/train-images-idx3-ubyte.gz
check 'cut/train-images-idx3-ubyte\.gz: .*' train --data cut --out out
cp job.yaml cut/train-images-idx3-ubyte.gz
check 'cut/train-images-idx3-ubyte\.gz: .*' train --data cut --out out
cp data/train-images-idx3-ubyte.gz cut
cp data/t10k-labels-idx1-ubyte.gz cut/train-labels-idx1-ubyte.gz
check 'cut/train-.*60.*200.*|cut/train-.*200.*60.*' train --data cut --out out

# weights and checkpoints of something else
check "good/model\.safetensors: it has no tensor 'fc3\.weight', 'fc3\.bias' \(expected weights of the model mnist_mlp\)" \
    eval mnist_mlp --weights good/model.safetensors --data data
check 'job\.yaml: .*' eval --weights job.yaml --data data
check 'good/model\.safetensors: it is no checkpoint.*' train --data data --out out \
    --resume good/model.safetensors
printf 'model: fashion_cnn\noptimizer: {kind: adam}\n' >adam.yaml
check 'good/checkpoint\.safetensors: it was made with optimizer sgd \(expected adam\)' \
    train adam.yaml --data data --out out --resume good/checkpoint.safetensors
head -c 1000 good/checkpoint.safetensors >short.safetensors
check 'short\.safetensors: .*' train --data data --out out --resume short.safetensors

check 'good/checkpoint\.safetensors: made with another than dtype bfloat16 \(expected dtype float32\)' \
    train fashion_cnn --data data --out out --resume good/checkpoint.safetensors --dtype bfloat16

# options that the data has no use for
check '--data: inputs or a target by name of data without names \(expected arrays or a table\)' \
    train --data data --out out --data-target y
printf 'x,y\n1,0\n2,1\n3,0\n4,1\n' >table.csv
cat >table.yaml <<'END'
model: {input: [1], layers: [linear: {name: fc, out_features: 2}], loss: cross_entropy}
END
check '--data: byte pairs \(tokens, vocabulary, tokenizer\) of data that is no text \(expected text for a model of tokens\)' \
    train table.yaml --data table.csv --out out --tokens bpe
check '--test-share: .0. \(expected a number from 1e-06 to below 1\)' \
    train table.yaml --data table.csv --out out --test-share 0

# images
check 'job\.yaml: begins with .* \(expected a PNG or JPEG image\)' \
    predict --weights good/model.safetensors job.yaml
head -c 2000 "$images/trousers.jpg" >cut.jpg
check 'cut\.jpg: .*' predict --weights good/model.safetensors cut.jpg

# numbers
check 'data/train-.*: 200 samples for batches of 500 on 1 rank \(expected at least one batch a rank\)' \
    train --data data --out out --batch-size 500
check '--learning-rate: -1 .*' train --data data --out out --learning-rate=-1

# parameters of another optimizer or schedule
check '--momentum: not a parameter of adam, which has learning_rate, .*, eps' \
    train --data data --out out --optimizer adam --momentum 0.9
check '--beta1: not a parameter of sgd, which has learning_rate, .*, momentum, .*' \
    train --data data --out out --optimizer sgd --beta1 0.5
printf 'model: fashion_cnn\noptimizer: {kind: adam, nesterov: true}\n' >nesterov.yaml
check 'nesterov\.yaml:2: nesterov is not a parameter of adam, which has .*' \
    train nesterov.yaml --data data --out out
SONDE_ALPHA=0.5 check '--alpha: not a parameter of sgd, which has .*' \
    train --data data --out out
check '--gamma: a parameter of the schedule step, not of cosine' \
    train --data data --out out --schedule cosine --gamma 0.5
check '--rates: the schedule table has none \(expected STEP=RATE\)' \
    train --data data --out out --schedule table

# pictures
check 'nowhere/x\.png: cannot be written: No such file or directory' \
    eval --weights good/model.safetensors --data data --confusion nowhere/x.png
check "x\.gif: pictures of the kind '\.gif' cannot be written \(expected \.png or \.svg\)" \
    eval --weights good/model.safetensors --data data --confusion x.gif
