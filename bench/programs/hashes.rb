# Hashes whose strings come and go, rows sorted by a string, trees of arrays. Argument: thousands.
many = 1000 * ARGV[0].to_i
srand 1
words = {}
6.times do
  many.times { |i| words["k#{rand(many / 2)}"] = ("v" * (i % 60)) + i.to_s }
  words.delete_if { rand < 0.4 }
end
rows = (1..many * 2).map { |i| [i, i.to_s, { a: i }] }
puts words.size, rows.sort_by { |row| row[1] }.first[0]

def tree(depth)
  depth.zero? ? [nil, nil] : [tree(depth - 1), tree(depth - 1)]
end

def nodes(tree)
  tree[0] ? 1 + nodes(tree[0]) + nodes(tree[1]) : 1
end
5.times { puts nodes(tree(14)) }
