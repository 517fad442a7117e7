#!/usr/bin/env bash
# Counts the instructions of one pair in each scenario, of one question to the limiter in `throttle`. Counts do not
# depend on how busy the machine is.
#
#   bench/instructions.sh            prints them
#   bench/instructions.sh --check    fails where one is more than 3 % above bench/instructions.baseline, and where a path
#                                    of four segments costs more than four flat keys or the limiter more than half a pair
#   bench/instructions.sh --update   writes the baseline
set -euo pipefail
cd "$(dirname "$0")/.."
baseline=bench/instructions.baseline
mode=${1:-}

if ! command -v valgrind >/dev/null; then
    echo "valgrind is not installed (Debian: apt-get install valgrind); instructions are not counted" >&2
    [ "${CI:-}" != true ]
    exit
fi

cargo build --quiet --release -p waymaker-bench --bin instructions
program=${CARGO_TARGET_DIR:-target}/release/instructions

# Instructions of a scenario with so many pairs.
count() {
    local out
    out=$(mktemp)
    valgrind --tool=callgrind --callgrind-out-file="$out" "$program" "$1" "$2" >/dev/null 2>&1
    sed -n 's/^summary: //p;s/^totals: //p' "$out" | head -n 1
    rm -f "$out"
}

results=$(
    for scenario in pair hand_over codec tree_depth_4 permits throttle; do
        few=$(count "$scenario" 6400)
        many=$(count "$scenario" 106400)
        echo "$scenario $(((many - few) / 100000))"
    done
)
echo "$results"

case $mode in
--update) echo "$results" >"$baseline" ;;
--check)
    status=0
    while read -r scenario now; do
        before=$(sed -n "s/^$scenario //p" "$baseline")
        if [ -z "$before" ]; then
            echo "$scenario has no baseline" >&2
            status=1
        elif [ $((now * 100)) -gt $((before * 103)) ]; then
            echo "$scenario takes $now instructions a pair, $before before: more than 3 % above" >&2
            status=1
        fi
    done <<<"$results"
    of() { sed -n "s/^$1 //p" <<<"$results"; }
    if [ "$(of tree_depth_4)" -gt $(($(of pair) * 4)) ]; then
        echo "a pair of a path of four segments takes more than four times what a flat one takes" >&2
        status=1
    fi
    # One question is one request. An acquire and a release are two, and take about as much each.
    if [ $(($(of throttle) * 2)) -gt "$(of pair)" ]; then
        echo "a question to the limiter takes more than half of a flat pair" >&2
        status=1
    fi
    exit $status
    ;;
esac
