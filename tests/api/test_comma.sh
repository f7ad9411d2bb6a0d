# test_comma.sh - the library in a program whose locale has a decimal comma: tests that read and
# write fractions pass there too. The locale is built if it is not installed.
set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export LC_ALL=C SONDE_TEST_LOCALE=de_DE.UTF-8
if ! locale -a 2>/dev/null | grep -qix 'de_DE.utf-\?8'; then
    localedef -i de_DE -f UTF-8 "$work/de_DE.UTF-8" >/dev/null 2>&1
    [ -d "$work/de_DE.UTF-8" ] || {
        echo "there is no locale de_DE.UTF-8, and localedef cannot build it"
        exit 77
    }
    export LOCPATH=$work
fi

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

check base test_text
check tensor test_reduction
check observe test_cell test_outfeed_table test_print_session
check hook test_files test_attach
check watch test_watch
check trial test_reduce
check rules test_parameters test_inputs test_losses test_units test_actions test_user_sources
check report test_report
check plot test_curves test_pictures test_scene
check nn test_job test_job_loss test_job_options test_trainer test_taps_names
exit $failed
