# held ROLE: print the token and return 0 while ROLE is held here, else return 3, as `rink held`.
# RINK_FILES is the sidecar's --files. ROLE has only the characters A-Z a-z 0-9 _ -. The time of
# /proc/uptime is up to 9 ms behind.
held() {
	{ read -r token written end rest <"$RINK_FILES/held/$1" && read -r up _ </proc/uptime; } \
		2>/dev/null || return 3
	now=$((${up%.*}${up#*.}0 + 9))
	[ -z "$rest" ] && [ "$written" -le "$now" ] 2>/dev/null && [ "$now" -lt "$end" ] 2>/dev/null \
		&& echo "$token" || return 3
}
