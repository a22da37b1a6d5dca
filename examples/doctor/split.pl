# Reads a long log and keeps one line in fifty.
use strict;
use warnings;
$| = 1;
my @lines;
push @lines, "x" x (50 + $_ % 900) for 0 .. 400_000;
my @kept = @lines[grep { $_ % 50 == 0 } 0 .. $#lines];
@lines = ();
print "ready\n";
sleep 3600;
