<?php
// A hash whose strings come and go, rows sorted by a string, to JSON and back. Argument: thousands.
$many = 1000 * (int) $argv[1];
mt_srand(1);
$words = [];
for ($round = 0; $round < 5; $round++) {
    for ($i = 0; $i < $many; $i++) {
        $words["k" . mt_rand(0, intdiv($many, 2))] = str_repeat("v", $i % 60) . $i;
    }
    foreach ($words as $key => $value) {
        if (mt_rand(0, 9) < 4) {
            unset($words[$key]);
        }
    }
}
$rows = [];
for ($i = 0; $i < $many; $i++) {
    $rows[] = [$i, (string) $i, ['a' => $i]];
}
usort($rows, fn($x, $y) => strcmp($x[1], $y[1]));
echo count($words), " ", count($rows), " ", $rows[7][1], "\n";
for ($round = 0; $round < 3; $round++) {
    $rows = json_decode(json_encode($rows), true);
    echo count($rows), " ", $rows[9][1], "\n";
}
