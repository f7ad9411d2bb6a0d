#!/usr/bin/env bash
# One training in several processes over MPI: mpirun -n 2 sonde train.
. "$(dirname "$0")/lib.sh"
[ -z "${SONDE_SLOWED_BY:-}" ] || { echo "MPI leaks, and is not built with sanitizers"; exit 77; }
command -v mpirun >"$out" || { echo "mpirun is not installed"; exit 77; }
[ -e "$SONDE_BIN/../lib/sonde/sonde-mpi.so" ] || { echo "built without MPI"; exit 77; }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl_base_warn_component_unused=0
unset OMPI_COMM_WORLD_SIZE PMI_SIZE
# Shared memory alone, below the test's folder: a container may forbid more.
export OMPI_MCA_btl=self,vader OMPI_MCA_btl_vader_single_copy_mechanism=none
export OMPI_MCA_btl_vader_backing_directory=$work
mpi() { mpirun --oversubscribe "$@"; }
mpi -n 2 true >"$out" 2>&1 || { tail -3 "$out"; echo "mpirun cannot start processes here"; exit 77; }

# Sessions: ranks equal replicas, bit for bit; a silent rank and another network are errors.
for n in 2 3; do
    run 0 mpi -n $n "$SONDE_BIN/tests_nn" test_ranks
    [ "$(grep -c 'PASSED  \] 8 test' "$err" "$out" | awk -F: '{n += $2} END {print n}')" -eq $n ] ||
        fail "$n ranks: $(cat "$out" "$err")"
done
for last in silent odd; do
    TEST_RANKS=$last mpi -n 2 "$SONDE_BIN/tests_nn" test_ranks >"$out" 2>&1
    ! grep -q FAILED "$out" && grep -q 'PASSED  \] 1 test' "$out" || fail "$last: $(cat "$out")"
done

# A training: two workers of one run, one set of results, and one voice.
run 0 "$sonde" data synth --out data --train 1200 --test 100 --quiet
train=("$sonde" train fashion_cnn --data data --no-pictures --epochs 20 --no-eval)
run 0 mpi -n 2 "${train[@]}" --out whole --record whole-run
[ "$(grep -c '^epoch 20/20: loss' "$out")" -eq 1 ] || fail "more than one voice: $(cat "$out")"
grep -q '^Saved to whole: model.safetensors, checkpoint.safetensors$' "$out" || fail "$(cat "$out")"
[ ! -s "$err" ] || fail "stderr: $(cat "$err")"
run 0 "$sonde" ls whole-run
grep -q '^workers   2 of 2$' "$out" || fail "$(head "$out")"
grep -q ' 740 train' "$out" || fail "not 37 steps of 2 x 16 samples an epoch: $(head "$out")"
run 0 "$sonde" verify whole-run
run 0 "$sonde" show whole-run fc2.weight --step 700
for w in 0 1; do
    "$sonde" query whole-run fc2.weight --format csv --stat mean,l2 --worker $w | cut -d, -f1-3,6- >worker$w
done
[ "$(wc -l <worker0)" -gt 50 ] || fail "$(wc -l <worker0) lines of fc2.weight"
same worker0 worker1

# A job of another number of ranks does not continue it.
run 2 "${train[@]}" --out whole --resume
grep -q 'made with another ranks than 1 (expected ranks 2)' "$err" || fail "$(cat "$err")"

# A rank dies: the training ends, with the last step saved, and ranks that begin again continue it
# as if nothing had been.
part=(sh -c 'echo $$ >pid.$OMPI_COMM_WORLD_RANK; exec "$@"' - "${train[@]}" --out part --record part-run)
mpi -n 2 "${part[@]}" >"$out" 2>"$err" &
ranks=$!
for _ in $(seq 12000); do
    [ -e part/checkpoint.safetensors ] && break
    kill -0 "$ranks" 2>/dev/null || break
    sleep 0.01
done
kill -9 "$(cat pid.1)" 2>/dev/null && killed=yes || killed=
wait "$ranks" && code=0 || code=$?
if [ -n "$killed" ] && [ "$code" -ne 0 ]; then
    grep -q 'rank 1 .*exited on signal 9' "$err" || fail "nobody tells of the death: $(cat "$err")"
    run 0 mpi -n 2 "${train[@]}" --out part --record part-run --resume
fi
cmp whole/model.safetensors part/model.safetensors || fail "resumed ranks give other weights"
run 0 "$sonde" verify part-run

# Requests: one checkpoint, and an end of all ranks after the same step, which says by whom.
mpi -n 2 "${train[@]}" --rules none --epochs 100000 --out asked --record asked-run \
    >"$out" 2>"$err" &
ranks=$!
wait_for() {
    for _ in $(seq 12000); do
        compgen -G "$1" >/dev/null && return
        kill -0 "$ranks" 2>/dev/null || break
        sleep 0.01
    done
    fail "no $1: $(cat "$err")"
}
wait_for asked/checkpoint.safetensors
"$sonde" checkpoint asked-run >/dev/null
wait_for 'asked-run/checkpoints/step-*.safetensors'
"$sonde" stop asked-run >/dev/null
wait "$ranks" && code=0 || code=$?
[ "$code" -eq 130 ] || fail "ended with $code: $(cat "$err")"
grep -q "^sonde: warning: stopped after .*: requested by 'sonde stop'" "$err" || fail "$(cat "$err")"
[ "$(ls asked-run/checkpoints | wc -l)" -eq 1 ] || fail "$(ls asked-run/checkpoints)"
run 0 "$sonde" ls asked-run
grep -q "^status *ended: interrupted (requested by 'sonde stop')" "$out" || fail "$(head "$out")"

# A rule's stop, too. Each line is of one rank, which the second one's say.
run 1 env -u SONDE_LOG_LEVEL mpirun --oversubscribe -n 2 "${train[@]}" --learning-rate 500 --epochs 1000 \
    --stop-on error --out wrong --record wrong-run
grep -q '^rank 1: step [0-9]* (epoch 1): error: WeightUpdateRatio: ' "$err" || fail "$(cat "$err")"
grep -q '^sonde: rank 1: stop requested: ' "$err" || fail "$(cat "$err")"
grep -q '^sonde: warning: stopped after ' "$err" || fail "$(cat "$err")"
sed '/^-----/,$d' "$err" | grep -v '^\(sonde: \|rank 1: \|step [0-9]\)' >"$out" && fail "$(cat "$err")"

# A mistake on the command line is printed once, unless each rank has a line of its own.
run 2 mpi -n 2 "$sonde" train fashion_cnn --nonsense
[ "$(grep -c '^sonde: error: train: unknown option' "$err")" -eq 1 ] || fail "$(cat "$err")"
mpi -n 1 "$sonde" train --data data --epochs 1 --out out : -n 1 "$sonde" train --nonsense >"$out" 2>"$err" &&
    fail "$(cat "$out")"
grep -q '^sonde: error: train: unknown option' "$err" || fail "$(cat "$err")"

# A mistake ends all ranks.
run 2 mpi -n 2 "$sonde" train fashion_cnn --data data --epochs 1 --batch-size 0
! grep -q 'Saved' "$out" || fail "$(cat "$out")"

# So do ranks whose options, data or schedule differ: another learning rate would give each its own
# weights, and another number of steps would leave one waiting.
run 0 "$sonde" data synth --out other --train 1100 --test 100 --quiet
unlike() { # WHAT ARGUMENT...: of rank 1
    local what=$1 same=("$sonde" train fashion_cnn --data data --no-pictures --no-eval --out unlike)
    shift
    mpi -n 1 "${same[@]}" : -n 1 "${same[@]}" "$@" >"$out" 2>"$err" && fail "$what: $(cat "$out")"
    grep -q "^sonde: .*error: mpirun: $what (expected one training" "$err" ||
        fail "$what: $(cat "$out" "$err")"
    [ ! -e unlike/model.safetensors ] || fail "$what: a model is saved"
}
unlike "the network or its options of rank 1 differs from rank 0's" --learning-rate 0.02
unlike "the number of epochs of rank 1 differs from rank 0's" --epochs 3
unlike "the number of training samples of rank 1 differs from rank 0's" --data other
