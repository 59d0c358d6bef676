<?php
// Blocks in usleep, below functions, a method and a function that C calls.

class Server
{
    public function handle(int $seconds): void
    {
        sleep($seconds); // line 8
    }
}

function compare($one, $other): int
{
    (new Server())->handle(1000); // line 14
    return 0;
}

function request(): void
{
    $list = [1, 2];
    // usort calls back from C: a second call of the engine's loop.
    usort($list, 'compare'); // line 22
}

request(); // line 25
