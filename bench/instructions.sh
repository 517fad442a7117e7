#!/usr/bin/env bash
# Counts the instructions of one acquire and release pair in each scenario of bench/src/bin/instructions*.rs; in the scenario
# `throttle`, of one request to the limiter. The counts do not depend on how busy the machine is.
#
#   bench/instructions.sh            prints the counts
#   bench/instructions.sh --check    prints each count, its baseline and the difference; fails if a count is more than 3 %
#                                    above its baseline, if a path of four segments costs more than four flat keys did, or
#                                    if a limiter request costs more than half a pair
#   bench/instructions.sh --update   adds the scenarios without a baseline; leaves the others unchanged
#   bench/instructions.sh --rebase   replaces the whole baseline, at the start of a development round
#
# The baseline is the code at the start of a development round. Changes do not update it, so that many small costs add up
# to a failure.
set -euo pipefail
cd "$(dirname "$0")/.."
baseline=bench/instructions.baseline
# Cargo profile of the counted programs. After a change, run --rebase, because counts of two profiles are not comparable.
profile=release
# A count is the difference of two runs with this many pairs. Both are multiples of the longest read, 128 pairs.
few=6400
many=57600

usage() {
    sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" >&2
    exit 2
}

mode=${1:-print}
case $mode in
print | --check | --update | --rebase) [ $# -le 1 ] || usage ;;
*) usage ;;
esac

if ! command -v valgrind >/dev/null; then
    echo "*** SKIPPED counts of instructions: valgrind is not installed (Debian: apt-get install valgrind)" >&2
    [ "${CI:-}" != true ]
    exit
fi

# Scenarios of each program.
engine='pair hand_over codec tree_depth_4 permits throttle'
server='worker_depth_1 worker_depth_128 worker_durable inlet'
client='client_lane'
scenarios="$engine $server $client"

cargo build --quiet --locked --profile "$profile" -p waymaker-bench \
    --bin instructions --bin instructions_server --bin instructions_client
programs=${CARGO_TARGET_DIR:-target}/$profile
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export programs server client work

# Writes the instruction count of a whole run to a file. Arguments: SCENARIO PAIRS.
run() {
    local program=instructions out=$work/$1.$2.callgrind log=$work/$1.$2.log
    case " $server " in *" $1 "*) program=instructions_server ;; esac
    case " $client " in *" $1 "*) program=instructions_client ;; esac
    # Every run uses the same program name and an empty environment, because both are in memory and shift later allocations.
    cd "$programs"
    if ! env -i "PATH=$PATH" valgrind --tool=callgrind --callgrind-out-file="$out" "./$program" "$1" "$2" >"$log" 2>&1; then
        cat "$log" >&2
        return 1
    fi
    sed -nE 's/^(summary|totals): ([0-9]+)$/\2/p' "$out" | head -n 1 >"$work/$1.$2"
    if [ ! -s "$work/$1.$2" ]; then
        echo "callgrind counted nothing in $1 with $2 pairs" >&2
        return 1
    fi
}
export -f run

baseline_of() { sed -n "s/^$1 //p" "$baseline"; }

if [ "$mode" = --update ]; then
    missing=
    for scenario in $scenarios; do
        [ -n "$(baseline_of "$scenario")" ] || missing+="$scenario "
    done
    if [ -z "$missing" ]; then
        echo "every scenario already has a baseline, which --update does not change; use --rebase to start a new round" >&2
        exit 1
    fi
    scenarios=$missing
fi

# Two runs at a time, because each run has a single thread that never waits.
for scenario in $scenarios; do
    printf '%s %s\n' "$scenario" "$few" "$scenario" "$many"
done | xargs -P 2 -n 2 bash -c 'run "$@"' run

results=
for scenario in $scenarios; do
    count=$((($(<"$work/$scenario.$many") - $(<"$work/$scenario.$few")) / (many - few)))
    # A scenario that ends early would pass every limit.
    if [ "$count" -le 0 ]; then
        echo "$scenario takes $count instructions per pair, so it does not run its pairs" >&2
        exit 1
    fi
    results+=${results:+$'\n'}"$scenario $count"
done

check() {
    local status=0 scenario now before
    printf '%-18s %8s %8s %9s\n' scenario count baseline change
    while read -r scenario now; do
        before=$(baseline_of "$scenario")
        if [ -z "$before" ]; then
            printf '%-18s %8s %8s %9s\n' "$scenario" "$now" - -
            echo "$scenario has no baseline; add it with bench/instructions.sh --update" >&2
            status=1
            continue
        fi
        awk -v name="$scenario" -v now="$now" -v before="$before" \
            'BEGIN { printf "%-18s %8d %8d %+8.2f%%\n", name, now, before, (now / before - 1) * 100 }'
        if [ $((now * 100)) -gt $((before * 103)) ]; then
            echo "$scenario takes $now instructions, more than 3 % above its baseline of $before" >&2
            status=1
        fi
    done <<<"$results"
    while read -r scenario _; do
        case " $scenarios " in
        *" $scenario "*) ;;
        *)
            echo "$baseline has $scenario, which is not a scenario" >&2
            status=1
            ;;
        esac
    done < <(grep -v '^#' "$baseline")
    of() { sed -n "s/^$1 //p" <<<"$results"; }
    # The baseline of the flat pair, so that a faster flat pair is no failure.
    if [ "$(of tree_depth_4)" -gt $(($(baseline_of pair) * 4)) ]; then
        echo "a pair on a path of four segments takes more than four times the baseline of a flat pair" >&2
        status=1
    fi
    # A limiter request is one request. An acquire and a release are two requests, which cost about the same.
    if [ $(($(of throttle) * 2)) -gt "$(of pair)" ]; then
        echo "a request to the limiter takes more than half the instructions of a flat pair" >&2
        status=1
    fi
    return $status
}

case $mode in
print) echo "$results" ;;
--check) check ;;
--update)
    echo "$results" >>"$baseline"
    echo "$results"
    ;;
--rebase)
    {
        echo "# Instructions of one pair: counts of commit $(git describe --always --dirty)'s code, measured on" \
            "$(date +%F) with rustc $(rustc --version | cut -d ' ' -f 2), profile $profile."
        echo "# Changes do not update them: --check compares with the start of the round. A scenario that was added later" \
            "(--update) has the count of the commit that added it."
        echo "$results"
    } >"$work/baseline"
    mv "$work/baseline" "$baseline"
    echo "$results"
    ;;
esac
