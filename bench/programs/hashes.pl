# Hashes of arrays whose entries come and go, a long line split and sorted. Argument: thousands.
use strict;
my $many = 1000 * shift;
my (%lists, $sum);
srand 1;
for (1 .. 4) {
    for my $i (1 .. $many) {
        push @{$lists{"key" . int(rand($many * 2 / 3))}}, $i x (1 + $i % 5);
    }
    # Sorted, because no seed decides the order of keys.
    for my $key (sort keys %lists) {
        delete $lists{$key} if rand() < 0.5;
    }
}
$sum += @{$lists{$_}} for keys %lists;
print "$sum\n";
my $line = join ",", map { "f$_" } 1 .. $many;
for (1 .. 3) {
    my @fields = split /,/, $line;
    my @sorted = sort @fields;
    print "$#sorted $sorted[$many / 2]\n";
}
