-- Removes what every processor has passed. KEYS: stream, offsets.
return trim(KEYS[1], KEYS[2], '', '')
