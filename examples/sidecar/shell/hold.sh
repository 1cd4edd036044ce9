#!/bin/sh
# Hold a role by polling the sidecar, and write "ROLE TOKEN" to stdout while it is held.
#
#     RINK_API=127.0.0.1:8181 ./hold.sh ROLE
role=$1 grant='' end=0 stopping=''
trap 'stopping=yes' TERM

now() { read -r up _ </proc/uptime && now=${up%.*}${up#*.}0; }
ask() { # CALL BODY SECONDS
	answer=$(curl --noproxy '*' -s -m "$3" -w '\n%{http_code}' -H 'Content-Type: application/json' \
		-d "$2" "http://${RINK_API:-127.0.0.1:8181}/v1/$1")
}
field() { printf %s "$answer" | sed -n "s/.*\"$1\":\"\{0,1\}\([^,\"}]*\).*/\1/p"; }
take() { # what an answer says of the role
	grant=$(field grant) told=$(field now_ms)
	case $(field state) in
	held)
		token=$(field token) end=$(field until_ms)
		if [ "$told" -lt $((asked - 20)) ] || [ "$told" -gt $((now + 20)) ]; then
			end=$((asked + $(field left_ms))) # another clock
		fi
		;;
	lost)
		end=0 # no work runs now
		ask release "{\"grant\":\"$grant\",\"role\":\"$role\",\"token\":$(field token)}" 2
		;;
	*) end=0 ;; # waits
	esac
}

while now && [ -z "$stopping" ] || [ "$now" -lt "$end" ]; do
	asked=$now
	if [ -z "$grant" ]; then
		ask hold "{\"roles\":[\"$role\"],\"consumer\":\"shell\",\"alive\":15,\"wait\":5}" 8
	else
		ask renew "{\"grant\":\"$grant\"}" 2
	fi
	now
	case $answer in
	*200) take ;;
	*410) grant='' ;; # the sidecar has restarted. `until_ms` is still valid
	esac
	for _ in 1 2 3 4 5; do
		now
		[ $((now + 100)) -lt "$end" ] && echo "$role $token" # before each write
		sleep 0.2
	done
done
