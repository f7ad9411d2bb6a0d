#!/usr/bin/env bash
# The example of outfeed queues: its tables in every setting, on drawn images in MNIST's place.
. "$(dirname "$0")/lib.sh"
example=$SONDE_BIN/../examples/tensor_inspection
[ -x "$example" ] || exit 77

run 0 "$sonde" data synth --out data --train 2000 --test 10 --quiet

# What it prints, without the numbers.
inspect() {
    run 0 "$example" --data data --epochs 1 --steps-per-epoch 40 "$@"
    [ ! -s "$err" ] || fail "it warns: $(cat "$err")"
    cp "$out" whole
    sed -E 's/loss: .*/loss: L/; s/-?[0-9]+\.[0-9]{6} */N /g' whole >shapes
}
head='Epoch 1/1
40/40 - loss: L

Gradients callback'

inspect
same shapes <(cat <<END
$head
key: Dense_128.bias_grad shape: (10, 128)
key: Dense_128.weight_grad shape: (10, 128, 256)
Epoch 1 - Summary Stats
Index Name                       Mean         Std          Minimum      Maximum      NaNs    infs   
0     Dense_128.bias_grad        N N N N False   False  
1     Dense_128.weight_grad      N N N N False   False  

Multi-layer activations callback
key: Dense_128_acts shape: (40, 32, 128)
key: Dense_10_acts shape: (40, 32, 10)
Epoch 1 - Summary Stats
Index Name                Mean         Std          Minimum      Maximum      NaNs    infs   
0     Dense_128_acts      N N N N False   False  
1     Dense_10_acts       N N N N False   False  
END
)
# The columns are as wide with their numbers in.
grep -qE '^0     Dense_128\.bias_grad        -?0\.[0-9]{6} +-?0\.[0-9]{6} +' whole ||
    fail "$(cat whole)"
mv whole pipelined

# The same network by hand, and executions of any length: the same to the last digit.
inspect --model-type Model
same pipelined whole
inspect --steps-per-execution 4
same pipelined whole

# Gradients before they are accumulated; filters; none of them.
inspect --outfeed-pre-accumulated-gradients --activations-filters Dense_10
grep -e callback -e ^key: whole >keys
same keys <(cat <<'END'
Gradients callback
key: Dense_128.bias_grad shape: (40, 128)
key: Dense_128.weight_grad shape: (40, 128, 256)
Multi-layer activations callback
key: Dense_10_acts shape: (40, 32, 10)
END
)
# Looking elsewhere changes nothing.
same <(grep loss whole) <(grep loss pipelined)
same <(grep '^0  *Dense_10_acts' whole | cut -c6-) <(grep '^1  *Dense_10_acts' pipelined | cut -c6- |
    sed 's/acts       /acts      /')

inspect --no-pipelining --gradients-filters none
grep -e callback -e ^key: whole >keys
same keys <(cat <<'END'
Gradients callback
key: Dense_10.bias_grad shape: (40, 10)
key: Dense_10.weight_grad shape: (40, 10, 128)
key: Dense_128.bias_grad shape: (40, 128)
key: Dense_128.weight_grad shape: (40, 128, 784)
Multi-layer activations callback
key: Dense_128_acts shape: (40, 32, 128)
key: Dense_10_acts shape: (40, 32, 10)
END
)

for setting in ":40" "--use-gradient-accumulation:10" \
    "--use-gradient-accumulation --outfeed-pre-accumulated-gradients:40"; do
    # shellcheck disable=SC2086
    inspect --model-type Model --no-pipelining ${setting%:*} --activations-filters nothing
    grep -e callback -e ^key: whole >keys
    same keys <(cat <<END
Gradients callback
key: Dense_128.bias_grad shape: (${setting##*:}, 128)
key: Dense_128.weight_grad shape: (${setting##*:}, 128, 784)
Single layer activations callback
key: Dense_128_acts shape: (40, 32, 128)
END
    )
done

# A queue that nothing gets into says so.
run 0 "$example" --data data --epochs 2 --steps-per-epoch 8 --gradients-filters Dense_64
[ "$(grep -A1 '^Gradients callback' "$out" | grep -c '^No data enqueued$')" = 2 ] ||
    fail "$(cat "$out")"
grep -q "outfeed 'gradients': no key passes its filters" "$err" || fail "$(cat "$err")"

run 2 "$example" --data data --model-type Both
stderr_is "error: --model-type: Both (expected Sequential or Model)"
run 2 "$example" --steps-per-epoch 10
stderr_is "error: --steps-per-execution: gradients are accumulated over 4 steps (expected a multiple of 4)"
run 2 "$example" --epochs x
stderr_is "error: --epochs: x (expected a number from 1 to 1000000)"
run 2 "$example" --data nowhere
grep -q '^error: mnist: not found in nowhere' "$err" || fail "$(cat "$err")"
