#!/usr/bin/env bash
# A language model from the command: a text of one's own, its perplexity, its continuation.
. "$(dirname "$0")/lib.sh"

cat >tiny.yaml <<'END'
model:
  input: [8]
  dtype: int64
  target: [8]
  layers:
    - embedding: {name: wte, num_embeddings: 256, embedding_dim: 16}
    - positional_embedding: {name: wpe, num_embeddings: 8}
    - transformer_encoder_layer: {name: h0, nhead: 2, dim_feedforward: 32, is_causal: true}
    - linear: {name: head, out_features: 256}
  loss: {cross_entropy: {name: loss, dim: -1}}
optimizer: {kind: adam, learning_rate: 0.01}
rules: none
options: {epochs: 3, batch_size: 8, eval_batch_size: 8}
END
python3 -c 'print("abcdef\0" * 450, end="")' >text.txt # a byte of 0 cuts no text

run 0 "$sonde" train tiny.yaml --data text.txt --no-pictures
grep -q '^Eval perplexity: 1\.0[0-9]*, 0\.0[0-9]* bits a token$' "$out" || fail "$(cat "$out")"
grep -q ', test perplexity [0-9.]*, accuracy ' "$out" || fail "$(cat "$out")"
run 0 "$sonde" eval tiny.yaml --data text.txt --format json
python3 - "$out" <<'END' || fail "eval --format json: $(cat "$out")"
import json, math, sys
row = json.load(open(sys.argv[1]))
assert row["accuracy"] == 1.0 and abs(row["perplexity"] - math.exp(row["loss"])) < 1e-3, row
END
run 0 "$sonde" predict --model tiny.yaml --prompt cde --length 10 --temperature 0
[ "$(cat "$out")" = 'cdef?abcdef?a' ] || fail "predict: $(cat "$out")"
run 0 "$sonde" predict --model tiny.yaml --prompt cde --length 3 --format json --seed 5
[ "$(cat "$out")" = '{"prompt": "cde", "text": "f\u0000a"}' ] || fail "predict --format json: $(cat "$out")"

# what cannot be
run 2 "$sonde" predict gpt
stderr_is "sonde: error: gpt: is a model (expected an image, or --prompt TEXT; --model gpt names the model)"
run 2 "$sonde" eval some.safetensors
stderr_is "sonde: error: some.safetensors: is a file of weights (expected a model; --weights names weights)"
run 2 "$sonde" predict --model tiny.yaml
stderr_is "sonde: error: predict needs images, or --prompt TEXT"
run 2 "$sonde" predict --model tiny.yaml --prompt ""
stderr_is "sonde: error: prompt: 0 tokens (expected at least one token)"
run 2 "$sonde" predict --model fashion_cnn --prompt a
stderr_is "sonde: error: fashion_cnn: it does not continue a text (expected a model of tokens, as gpt)"
run 2 "$sonde" predict --model tiny.yaml "$images/trousers.jpg"
stderr_is "sonde: error: tiny.yaml: the model continues a text (expected --prompt TEXT)"
run 2 "$sonde" train tiny.yaml --out none
stderr_is "sonde: error: --data: no text is named (expected data: {path: FILE.txt} or {name: text-synth})"
printf abc >short.txt
run 2 "$sonde" train tiny.yaml --data short.txt --out none
stderr_is "sonde: error: short.txt: 2 bytes of text for samples of 8 tokens (expected more bytes than a sample has tokens)"
mkdir folder
run 2 "$sonde" train tiny.yaml --data folder --out none
stderr_is "sonde: error: folder: no train.txt (expected a text file, or a folder with train.txt and test.txt, or input.txt)"
sed 's/num_embeddings: 256/num_embeddings: 100/' tiny.yaml >narrow.yaml
run 2 "$sonde" train narrow.yaml --data text.txt --out none
grep -q '^sonde: error: input: token id 10[0-4] at sample [0-9]*, position [0-9]* (expected 0 to 99)$' "$err" ||
    fail "$(cat "$err")"

# byte pairs: learnt from the text by Python, saved beside the weights, found there
python=${SONDE_PYTHON:-python3}
run 2 env SONDE_PYTHON=/nowhere/python "$sonde" train tiny.yaml --data text.txt --tokens bpe --out none
grep -q '^sonde: error: /nowhere/python: cannot start Python.*pip install sonde' "$err" || fail "$(cat "$err")"
"$python" -c 'import numpy, tokenizers' 2>/dev/null || exit 0
sed 's/num_embeddings: 256/num_embeddings: vocabulary/; s/out_features: 256/out_features: vocabulary/' tiny.yaml >pairs.yaml
python3 -c 'print("one river and two roads; " * 400, end="")' >words.txt
run 0 "$sonde" train pairs.yaml --data words.txt --tokens bpe --vocabulary 280 --epochs 12 --out pairs --no-pictures -q
[ -s pairs/tokenizer.json ] || fail "no tokenizer is saved"
run 0 "$sonde" predict --model pairs.yaml --weights pairs/model.safetensors --prompt "one river" --length 5 --temperature 0
grep -q '^one river and two roads; ' "$out" || fail "predict: $(cat "$out")"
run 0 "$sonde" predict --model pairs.yaml --weights pairs/model.safetensors --prompt "one river" --length 1 --temperature 0 --format json
[ "$(cat "$out")" = '{"prompt": "one river", "text": " and"}' ] || fail "predict --format json: $(cat "$out")"
run 0 "$sonde" eval pairs.yaml --weights pairs/model.safetensors --data words.txt --format json
run 2 "$sonde" train pairs.yaml --data words.txt --tokenizer words.txt --out none
stderr_is "sonde: error: words.txt: no JSON (expected JSON)"
