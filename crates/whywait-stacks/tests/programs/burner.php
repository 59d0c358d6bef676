<?php
// Computes for good, in two functions that take turns.

function even(int $number): int
{
    for ($round = 0; $round < 50000; $round++) {
        $number = ($number * 31 + $round) & 0xffff;
    }
    return $number;
}

function odd(int $number): int
{
    for ($round = 0; $round < 20000; $round++) {
        $number = ($number * 17 + array_sum([$round, $number])) & 0xffff;
    }
    return $number;
}

function request(): void
{
    $number = 1;
    while (true) {
        $number = odd(even($number));
    }
}

request();
