# The schedules, with those of the plugins that the command line names.
_starpipe_list()
{
    local i plugins=()

    for ((i = 2; i < COMP_CWORD; i++)); do
        [ "${COMP_WORDS[i - 1]}" = --plugin ] || continue
        [ "${COMP_WORDS[i]}" != = ] || i=$((i + 1))
        plugins+=(--plugin "${COMP_WORDS[i]}")
    done
    "$program" list "${plugins[@]}" 2> /dev/null || "$program" list 2> /dev/null
}

# Files of plugins: from here, and those of STARPIPE_PLUGIN_PATH.
_starpipe_plugins()
{
    local place places

    compgen -f -X '!*.so' -- "$word"
    compgen -d -- "$word"
    IFS=: read -r -a places <<< "${STARPIPE_PLUGIN_PATH:-}"
    for place in "${places[@]}"; do
        if [ -d "$place" ]; then
            compgen -G "$place/*.so"
        elif [ -f "$place" ]; then
            printf '%s\n' "$place"
        fi
    done | while read -r place; do
        case $place in "$word"*) printf '%s\n' "$place" ;; esac
    done
}

# What the values of a table stand for: _starpipe_words VALUES.
_starpipe_words()
{
    local value

    for value in $1; do
        case $value in
        @files) compgen -f -- "$word" ;;
        @directories) compgen -d -- "$word" ;;
        @presets) compgen -W "$_starpipe_presets" -- "$word" ;;
        @machines) compgen -W "$_starpipe_machines" -- "$word" ;;
        @plugins) _starpipe_plugins ;;
        @schedules) compgen -W "$(_starpipe_list | sed 's/ .*//') csv:" -- "$word" ;;
        *) compgen -W "$value" -- "$word" ;;
        esac
    done
}

# After the colon of a schedule: its options, the last one of a list of them.
_starpipe_schedule_options()
{
    local known done=${word%"${word##*,}"}

    if [ "$1" = csv ]; then
        compgen -f -- "$word"
        return
    fi
    known=$(_starpipe_list | sed -n "s/^$1 .*\[\(.*\)\]$/\1/p")
    compgen -P "$done" -W "${known//../}" -- "${word##*,}"
}

_starpipe()
{
    local program=${COMP_WORDS[0]} command=${COMP_WORDS[1]} word=${COMP_WORDS[COMP_CWORD]}
    local at=$((COMP_CWORD - 1)) options='' values='' takes=''

    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        mapfile -t COMPREPLY < <(compgen -W "$_starpipe_commands" -- "$word")
        return
    fi
    if [ "$command" = help ]; then
        [ "$COMP_CWORD" -ne 2 ] || mapfile -t COMPREPLY < <(compgen -W "${_starpipe_commands%help *}" -- "$word")
        return
    fi
    if [ "$COMP_CWORD" -gt 2 ] && _starpipe_table "$command ${COMP_WORDS[2]}" ''; then
        command="$command ${COMP_WORDS[2]}"
    fi
    # The words are cut at '=' and ':', which are words of their own.
    case $word in = | :) at=$COMP_CWORD word= ;; esac
    if [ "${COMP_WORDS[at]}" = : ]; then
        mapfile -t COMPREPLY < <(_starpipe_schedule_options "${COMP_WORDS[at - 1]}")
    else
        if [ "${COMP_WORDS[at]}" = = ]; then
            at=$((at - 1))
            [[ ${COMP_WORDS[at]} == --* ]] || return # a number: every=K, limit=K
        fi
        options='' values='' takes=''
        _starpipe_table "$command" "${COMP_WORDS[at]}"
        if [ -z "$takes" ] && [[ $word == -* ]]; then
            values=$options
        elif [ -z "$takes" ]; then
            _starpipe_table "$command" operand
            [ -n "$values" ] || values=$options
        fi
        # A directory gets its slash, and what is in it comes next.
        case $values in *@files* | *@directories* | *@plugins*) compopt -o filenames 2> /dev/null ;; esac
        mapfile -t COMPREPLY < <(_starpipe_words "$values")
    fi
    case ${COMPREPLY[*]: -1} in = | :) compopt -o nospace 2> /dev/null ;; esac
}
complete -F _starpipe starpipe
