<?php
// A server with a process for each request, in four functions by the client's number: it computes,
// sleeps, waits for a lock, calls another service. Each answer says which process was in which
// function, and from when until when.
//
//   server.php, run by php-fpm: see php-fpm.sh

// What each takes, in seconds.
const LONG_S = 0.020;
const FUNCTIONS = ['computing', 'sleeping', 'locking', 'calling'];
// The client is a thousandth of its request's number.
const REQUESTS_PER_CLIENT = 1000;

// Each says from when until when it was in itself.
function computing(float $seconds): array
{
    $begun = hrtime(true);
    $finish = $begun + $seconds * 1e9;
    $mixed = 1;
    while (hrtime(true) < $finish) {
        for ($round = 0; $round < 200; $round++) {
            $mixed = ($mixed * 31 + $round) & 0xffffffff;
        }
    }
    return [$begun, hrtime(true)];
}

function sleeping(float $seconds): array
{
    $begun = hrtime(true);
    usleep((int) ($seconds * 1e6));
    return [$begun, hrtime(true)];
}

function locking(float $seconds): array
{
    $begun = hrtime(true);
    $lock = fopen($_SERVER['LOCK'], 'c');
    flock($lock, LOCK_EX);
    usleep((int) ($seconds / 2 * 1e6));
    flock($lock, LOCK_UN);
    return [$begun, hrtime(true)];
}

function calling(float $seconds): array
{
    $begun = hrtime(true);
    $peer = stream_socket_client("tcp://{$_SERVER['PEER']}");
    $milliseconds = round($seconds * 1e3);
    fwrite($peer, "GET /ms=$milliseconds HTTP/1.1\r\n\r\n");
    fread($peer, 4096);
    fclose($peer);
    return [$begun, hrtime(true)];
}

function work(int $way): array
{
    return match ($way) {
        0 => computing(LONG_S),
        1 => sleeping(LONG_S),
        2 => locking(LONG_S),
        default => calling(LONG_S),
    };
}

$read = hrtime(true);
$number = (int) substr($_SERVER['REQUEST_URI'], 1);
$way = intdiv($number, REQUESTS_PER_CLIENT) % count(FUNCTIONS);
[$begun, $ended] = work($way);
$answer = json_encode([
    'read' => $read / 1e6,
    'begun' => $begun / 1e6,
    'ended' => $ended / 1e6,
    'ran' => [[getmypid(), FUNCTIONS[$way], $begun, $ended]],
]);
header('Content-Length: ' . strlen($answer));
echo $answer;
