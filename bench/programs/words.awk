# Counts words in a table, keeps lines' numbers for some, sorts the words. Input: lines of words.
{
  for (i = 1; i <= NF; i++) {
    count[$i]++
    if (NR % 50 == 0) lines[$i] = lines[$i] NR " "
  }
  if (NR % 20000 == 0) {
    for (word in count) if (count[word] == 1) { delete count[word]; delete lines[word] }
  }
}
END {
  many = asorti(count, sorted)
  for (i = 1; i <= many; i++) length_of_all += length(lines[sorted[i]])
  print many, sorted[1], sorted[many], length_of_all
}
