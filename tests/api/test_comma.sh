# test_comma.sh - the library in a program of another locale: tests that read and write
# fractions pass with a decimal comma, and tests of names in Turkish, where I is not the
# capital of i. Locales that are not installed are built.
set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export LC_ALL=C LOCPATH=$work
for name in de_DE tr_TR; do
    localedef -i $name -f UTF-8 "$work/$name.UTF-8" >/dev/null 2>&1
    [ -d "$work/$name.UTF-8" ] || {
        echo "localedef cannot build $name.UTF-8"
        exit 77
    }
done

failed=0
check() {
    local room=$1 test
    shift
    for test in "$@"; do
        "${SONDE_BIN:?}/tests_$room" "$test" >"$work/log" 2>&1 && continue
        grep -E 'ERROR|LINE|FAILED|^ERROR' "$work/log" >&2
        echo "error: $room/$test fails under $SONDE_TEST_LOCALE" >&2
        failed=1
    done
}

export SONDE_TEST_LOCALE=de_DE.UTF-8
check base test_text
check tensor test_reduction
check observe test_cell test_outfeed_table test_print_session
check capture test_files test_attach test_watch
check trial test_reduce
check rules test_parameters test_losses
check plot test_curves test_scene test_report
check nn test_job test_job_loss test_job_options test_trainer test_taps_names

export SONDE_TEST_LOCALE=tr_TR.UTF-8
check base test_text
check tensor test_reduction test_dtype
check observe test_roles
check rules test_parameters test_registry
exit $failed
