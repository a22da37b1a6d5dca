# An array of lists whose entries come and go, values sorted, one long string. Argument: thousands.
set many [expr {1000 * [lindex $argv 0]}]
for {set i 0} {$i < $many} {incr i} {
  set a(k$i) [list $i [string repeat x [expr {$i % 30}]]]
  if {$i % 3 == 0} {unset -nocomplain a(k[expr {$i / 2}])}
}
set values {}
foreach key [lsort [array names a]] {lappend values [lindex $a($key) 1]}
set values [lsort $values]
set text [join $values ,]
puts "[array size a] [llength $values] [string length $text]"
