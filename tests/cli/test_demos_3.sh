#!/usr/bin/env bash
# A third of the demos, see demos.sh.
. "$(dirname "$0")/lib.sh"
. "$SONDE_TEST_DIR/cli/demos.sh"
try_demos 3 3
