-- Trees of tables, strings of many lengths, a table keyed by them. Argument: the trees' depth.
local depth = tonumber(arg[1])

local function tree(d)
  if d == 0 then return {} end
  return { tree(d - 1), tree(d - 1) }
end

local function nodes(t)
  if t[1] then return 1 + nodes(t[1]) + nodes(t[2]) end
  return 1
end

local long, seen = tree(depth), 0
for d = 4, depth, 4 do
  for _ = 1, 1 << (depth - d + 4) do seen = seen + nodes(tree(d)) end
end
print(seen, nodes(long))

local strings, places = {}, {}
for i = 1, 10 << depth do strings[i] = ("k" .. i):rep(i % 7 + 1) end
for i, s in ipairs(strings) do places[s] = i end
table.sort(strings)
print(#strings, places[strings[7]])
