#!/bin/sh
# Work under roles from a shell: each bank is polled from exactly one pod. The sidecar in the pod
# holds the roles. Replace `work` by your own, and ROLES by your roles. Names have no spaces here.
#
# Needs curl and awk. The ends of roles are in milliseconds of the clock that /proc/uptime shows.
# A line on stdout says when work under a role began or stopped: `SECONDS gained ROLE TOKEN`.
set -u
API=${API:-http://127.0.0.1:8181}
ROLES=${ROLES:-bank-1 bank-2 bank-3 bank-4}
PERIOD=${PERIOD:-1} # seconds between two calls
ALIVE=5             # without a call for so long, the sidecar gives the roles to others
CLOCKS_DIFFER=20    # milliseconds; /proc/uptime has steps of 10
LINE='
'

work() { # ROLE TOKEN UNTIL_MS: one short piece of work, which sends the token with each write
    :
}

now_ms() {
    read -r up _ < /proc/uptime
    now="${up%.*}${up#*.}0"
}

say() { # MS what ROLE TOKEN
    printf '%s.%s %s %s %s\n' "${1%???}" "${1#"${1%???}"}" "$2" "$3" "$4"
}

post() { # path, body, seconds: the answer, or a failure
    curl --silent --fail --noproxy '*' --max-time "$3" \
        --header 'Content-Type: application/json' --data "$2" "$API$1" < /dev/null
}

turns() { # the answer's turns, each a line: ROLE TOKEN STATE UNTIL_MS
    printf '%s' "$1" | awk -v RS='{' '
        function field(name) {
            if (!match($0, "\"" name "\":\"?[^\",}]*")) return ""
            text = substr($0, RSTART, RLENGTH)
            sub(/^[^:]*:"?/, "", text)
            return text
        }
        field("until_ms") != "" {
            print field("role"), field("token"), field("state"), field("until_ms")
        }'
}

hold() { # ask for all roles; nothing is held
    list=$(printf ',"%s"' $ROLES)
    body="{\"roles\":[${list#,}],\"consumer\":\"program\",\"wait\":5,\"alive\":$ALIVE}"
    answer=$(post /v1/hold "$body" 10) || return 1
    case $answer in *'"held":[]'*) return 1 ;; esac
    grant=$(printf '%s' "$answer" | sed 's/^{"grant":"\([^"]*\)".*/\1/')
}

check_clock() { # the sidecar's clock must be this one
    now_ms
    before=$now
    answer=$(post /v1/renew "{\"grant\":\"$grant\"}" 2) || return 0
    now_ms
    there=$(printf '%s' "$answer" | sed 's/.*"now_ms":\([0-9]*\).*/\1/')
    if [ "$there" -lt $((before - CLOCKS_DIFFER)) ] ||
        [ "$there" -gt $((now + CLOCKS_DIFFER)) ]; then
        echo "/proc/uptime is not the sidecar's clock here: count left_ms from before a call" >&2
        exit 1
    fi
}

take() { # an answer: work begins under new turns, and stops under those that are lost or gone
    now_ms
    old=$held held='' told=$(turns "$1")
    while read -r role token until; do
        case "$LINE$told" in
            *"$LINE$role $token "*) ;;
            *) [ -z "$role" ] || stop "$role" "$token" "$until" ;;
        esac
    done <<END
$old
END
    while read -r role token state until; do
        case "$LINE$old" in
            *"$LINE$role $token "*) is_new='' ;;
            *) is_new=1 ;;
        esac
        case $state in
            held)
                [ -z "$is_new" ] || say "$now" gained "$role" "$token"
                held="$held$role $token $until$LINE"
                ;;
            lost) # no work is under way here: it runs between two calls
                now_ms
                [ -n "$is_new" ] || stop "$role" "$token" "$until"
                post /v1/release "{\"grant\":\"$grant\",\"role\":\"$role\",\"token\":$token}" 2
                ;;
        esac
    done <<END
$told
END
}

stop() { # ROLE TOKEN UNTIL_MS: no work was begun at or after the end
    if [ "$now" -lt "$3" ]; then say "$now" 'let go' "$1" "$2"; else say "$3" 'let go' "$1" "$2"; fi
}

work_all() { # one piece of work under each role whose end has not come
    old=$held held=''
    while read -r role token until; do
        [ -n "$role" ] || continue
        now_ms
        if [ "$now" -lt "$until" ]; then
            work "$role" "$token" "$until" < /dev/null # it must not read the list of roles
            held="$held$role $token $until$LINE"
        else
            stop "$role" "$token" "$until"
        fi
    done <<END
$old
END
}

held='' grant='' ending=''
trap 'ending=1' TERM # go on until nothing is held: the sidecar hands the roles over meanwhile
while [ -z "$ending" ] || [ -n "$held" ]; do
    if [ -z "$grant" ]; then
        if hold; then check_clock; take "$answer"; else sleep "$PERIOD"; fi
    elif answer=$(post /v1/renew "{\"grant\":\"$grant\"}" 2); then
        take "$answer"
    elif [ -z "$held" ]; then
        grant='' # the sidecar has ended, or forgot it: ask anew once every end has passed
    fi
    work_all
    sleep "$PERIOD"
done
