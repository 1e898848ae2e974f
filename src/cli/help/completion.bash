# What the values of a table stand for: _starpipe_words VALUES.
_starpipe_words()
{
    local value

    for value in $1; do
        case $value in
        @files) compgen -f -- "$word" ;;
        @directories) compgen -d -- "$word" ;;
        @presets) compgen -W "$_starpipe_presets" -- "$word" ;;
        @schedules) compgen -W "$("$program" list 2> /dev/null | sed 's/ .*//')" -- "$word" ;;
        *) compgen -W "$value" -- "$word" ;;
        esac
    done
}

# After the colon of a schedule: its options, the last one of a list of them.
_starpipe_schedule_options()
{
    local known done=${word%"${word##*,}"}

    known=$("$program" list 2> /dev/null | sed -n "s/^$1 .*\[\(.*\)\]$/\1/p")
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
        case $values in *@files* | *@directories*) compopt -o filenames 2> /dev/null ;; esac
        mapfile -t COMPREPLY < <(_starpipe_words "$values")
    fi
    [ "${COMPREPLY[*]: -1}" != = ] || compopt -o nospace 2> /dev/null
}
complete -F _starpipe starpipe
