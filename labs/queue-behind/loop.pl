# A server that asks poll about each of its connections. Of seven requests one is slow, by the
# number in its path, and all that come meanwhile wait behind it, and then behind each other.
#
#     loop.pl [--to-child]

use strict;
use warnings;

use IO::Poll qw(POLLIN);
use IO::Socket::INET;
use Time::HiRes qw(CLOCK_MONOTONIC CLOCK_PROCESS_CPUTIME_ID clock_gettime sleep);

use constant { SLOW_OF => 7, SLOW_S => 0.15, QUICK_S => 0.006 };

my $to_child = grep { $_ eq '--to-child' } @ARGV;
my $listener = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 64) or die "listen: $!";
my $poll = IO::Poll->new;
# By descriptor: whose answer is due once a child has ended, and when the request was read.
my %waiting;

sub now_ms { return 1e3 * clock_gettime(CLOCK_MONOTONIC) }

sub resize_image { return sleep SLOW_S }

sub render_page {
    my $until = clock_gettime(CLOCK_PROCESS_CPUTIME_ID) + QUICK_S;
    1 while clock_gettime(CLOCK_PROCESS_CPUTIME_ID) < $until;
    return;
}

sub answer {
    my ($connection, $read) = @_;
    render_page();
    my $body = sprintf '{"read": %.3f, "begun": %.3f, "ended": %.3f}', $read, $read, now_ms();
    my $length = length $body;
    syswrite $connection, "HTTP/1.1 200 OK\r\nContent-Length: $length\r\n\r\n$body";
    return;
}

# The end of a pipe that ends when a child has resized an image.
sub child {
    my $pid = open my $pipe, '-|';
    die "fork: $!" if !defined $pid;
    if ($pid == 0) {
        resize_image();
        exit 0;
    }
    return $pipe;
}

sub serve {
    my ($connection) = @_;
    my $head = '';
    if (!sysread $connection, $head, 4096) {
        $poll->remove($connection);
        close $connection;
        return;
    }
    my $read = now_ms();
    my ($number) = $head =~ m{^GET /(\d+)} or die "not a request: $head";
    if ($number % SLOW_OF == 0) {
        if ($to_child) {
            my $pipe = child();
            $poll->mask($pipe => POLLIN);
            $waiting{fileno $pipe} = [$connection, $read];
            return;
        }
        resize_image();
    }
    answer($connection, $read);
    return;
}

open my $ready, '>', $ENV{READY_FILE} or die "READY_FILE: $!";
print {$ready} "$$ 127.0.0.1:" . $listener->sockport . "\n";
close $ready or die "READY_FILE: $!";

$poll->mask($listener => POLLIN);
while ($poll->poll >= 0) {
    for my $handle ($poll->handles) {
        next if !$poll->events($handle);
        if ($handle == $listener) {
            $poll->mask(scalar $listener->accept, POLLIN);
        }
        elsif (my $due = delete $waiting{fileno $handle}) {
            $poll->remove($handle);
            close $handle;
            answer(@{$due});
        }
        else {
            serve($handle);
        }
    }
}
