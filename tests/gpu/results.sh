# shellcheck shell=bash disable=SC2154
# What run-gpu-tests and run-gpu-bench share; they begin by sourcing it: a list of tests, run within
# a budget of seconds, and their results as one JSON object. Wants $work, a scratch directory.
#
# A test is a command or a function that exits 0 (pass), 77 (skip, the last line says why) or
# anything else (fail). It is given at most $limit seconds, which `limited COMMAND...` enforces.

names=() commands=()

# add NAME COMMAND...
add()
{
    local name=$1

    shift
    names+=("$name")
    commands+=("$(printf '%q ' "$@")")
}

# keep PATTERN...: only the tests whose names match one; all if there is none.
keep()
{
    local i pattern kept_names=() kept_commands=()

    [ $# -gt 0 ] || return 0
    for i in "${!names[@]}"; do
        for pattern; do
            # shellcheck disable=SC2053 # a pattern
            [[ ${names[i]} == $pattern ]] || continue
            kept_names+=("${names[i]}")
            kept_commands+=("${commands[i]}")
            break
        done
    done
    names=("${kept_names[@]}") commands=("${kept_commands[@]}")
}

seconds_left()
{
    echo $((budget - SECONDS))
}

limited()
{
    timeout -k 5 "$limit" "$@"
}

# Result N: status and seconds in $work/N.result, the output in $work/N.out.
run_test() # N
{
    local start=$EPOCHREALTIME status

    limit=$(seconds_left)
    if [ "$limit" -lt 5 ]; then
        echo "no time left" > "$work/$1.out"
        status=77
    else
        [ "$limit" -lt "$most_seconds" ] || limit=$most_seconds
        (eval "${commands[$1]}") > "$work/$1.out" 2>&1 < /dev/null
        status=$?
        # Cut off by the budget, not by its own slowness.
        if [ $status -eq 124 ]; then
            echo "still running after $limit s" >> "$work/$1.out"
            [ "$limit" -eq "$most_seconds" ] || status=77
        fi
    fi
    case $status in 0) status=pass ;; 77) status=skip ;; *) status=fail ;; esac
    awk -v s="$start" -v e="$EPOCHREALTIME" -v status=$status \
        'BEGIN { printf "%s %.2f\n", status, e - s }' > "$work/$1.result"
    read -r _ took < "$work/$1.result"
    printf '%s: %s (%s s)%s\n' "${status^^}" "${names[$1]}" "$took" \
        "$([ $status = pass ] || tail -n 1 "$work/$1.out" | cut -c 1-200 | sed 's/^/: /')"
}

# run_tests JOBS FIRST END: the tests from FIRST to before END, JOBS at a time.
run_tests()
{
    local jobs=$1 i running=0

    for ((i = $2; i < $3; i++)); do
        if [ $running -ge "$jobs" ]; then
            wait -n
            running=$((running - 1))
        fi
        run_test $i &
        running=$((running + 1))
    done
    wait
}

# A JSON string of what comes in.
json_string()
{
    tr -cd '\11\12\40-\176' | sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/\t/\\t/g' |
        awk 'BEGIN { printf "\"" } { printf "%s%s", (NR > 1 ? "\\n" : ""), $0 } END { printf "\"" }'
}

# "name":"...","driver":"...","memory_MiB":N of the first GPU, or the name of the CPU.
device_json()
{
    local name driver memory

    if [ "$device" = cuda ] && IFS=, read -r name driver memory < <(nvidia-smi --format=csv,noheader,nounits \
        --query-gpu=name,driver_version,memory.total 2> /dev/null | sed 's/, */,/g'); then
        printf '"name":%s,"driver":%s,"memory_MiB":%s' "$(json_string <<< "$name")" \
            "$(json_string <<< "$driver")" "${memory:-0}"
    else
        printf '"name":%s' "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1 | json_string)"
    fi
}

# count STATUS
count()
{
    cat "$work"/*.result 2> /dev/null | grep -c "^$1 "
}

# write_results FILE: $work/N.json, where there is one, are the figures of test N.
write_results()
{
    local i status took lines comma=''

    {
        printf '{"device":{"kind":"%s",%s},\n"info":%s,\n' "$device" "$(device_json)" \
            "$(json_string < "$work/info")"
        printf '"passed":%d,"failed":%d,"skipped":%d,"seconds":%d,\n"tests":{' "$(count pass)" \
            "$(count fail)" "$(count skip)" $SECONDS
        for i in "${!names[@]}"; do
            [ -s "$work/$i.result" ] || continue
            read -r status took < "$work/$i.result"
            printf '%s\n%s:{"status":"%s","seconds":%s' "$comma" "$(json_string <<< "${names[i]}")" \
                "$status" "$took"
            comma=,
            # The last line of what passed has its figures.
            lines=1
            [ "$status" != fail ] || lines=30
            printf ',"output":%s' "$(tail -n $lines "$work/$i.out" | cut -c 1-300 | json_string)"
            [ ! -s "$work/$i.json" ] || printf ',"figures":%s' "$(cat "$work/$i.json")"
            printf '}'
        done
        printf '\n}}\n'
    } > "$1"
}

# finish_results FILE: the last line; 1 if a test failed. Whoever is stopped calls it too: what has
# ended is not lost.
finish_results()
{
    [ -z "$1" ] || write_results "$1"
    echo "$(count pass) passed, $(count fail) failed, $(count skip) skipped in $SECONDS s"
    [ "$(count fail)" -eq 0 ]
}
