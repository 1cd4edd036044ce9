<?php
// Hold a role by polling the sidecar, and write "ROLE TOKEN" to stdout while it is held.
//
//     RINK_API=127.0.0.1:8181 php hold.php ROLE
//
// SIGTERM needs the extension pcntl, which some images of PHP leave out.

$role = $argv[1];
$grant = '';
$held = []; // the token and the end of each role
$stopping = false;
pcntl_async_signals(true);
pcntl_signal(SIGTERM, function () use (&$stopping) { $stopping = true; });

function nowMs(): int
{
    return (int) round(1000 * (float) file_get_contents('/proc/uptime'));
}

/** Return the status, 0 if there is no sidecar, and the answer. PHP's streams obey no http_proxy. */
function call(string $path, array $body, float $timeout = 2.0): array
{
    $api = getenv('RINK_API') ?: '127.0.0.1:8181';
    $http = ['method' => 'POST', 'header' => 'Content-Type: application/json', 'timeout' => $timeout,
        'content' => json_encode($body), 'ignore_errors' => true];
    $http_response_header = [];
    $answer = @file_get_contents("http://$api$path", false, stream_context_create(['http' => $http]));
    $status = (int) (explode(' ', $http_response_header[0] ?? '')[1] ?? 0);
    return [$status, json_decode($answer ?: 'null', true)];
}

while (!$stopping || array_filter($held, fn ($turn) => nowMs() < $turn['end'])) {
    $asked = nowMs();
    [$status, $answer] = $grant !== ''
        ? call('/v1/renew', ['grant' => $grant])
        : call('/v1/hold', ['roles' => [$role], 'consumer' => 'php', 'alive' => 15, 'wait' => 5], 8);
    $read = nowMs();
    if ($status === 200) {
        $grant = $answer['grant'];
        $held = [];
        foreach ($answer['held'] as $turn) {
            if ($turn['state'] === 'lost') { // no work runs now
                call('/v1/release', ['grant' => $grant, 'role' => $turn['role'], 'token' => $turn['token']]);
                continue;
            }
            $isSameClock = $asked - 20 <= $turn['now_ms'] && $turn['now_ms'] <= $read + 20;
            $turn['end'] = $isSameClock ? $turn['until_ms'] : $asked + $turn['left_ms'];
            $held[] = $turn;
        }
    } elseif ($status === 410) {
        $grant = ''; // the sidecar was restarted, or has forgotten us; the ends told still bind
    }
    for ($write = 0; $write < 5; $write++) {
        foreach ($held as $turn) {
            if (nowMs() + 100 < $turn['end']) { // before each write
                echo $turn['role'], ' ', $turn['token'], "\n";
            }
        }
        usleep(200_000);
    }
}
