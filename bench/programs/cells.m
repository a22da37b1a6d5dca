% A structure by names, cells of strings made unique, a vector that grows by one, matrices. Argument: thousands.
many = 1000 * str2double(argv(){end});
s = struct();
for i = 1:many / 4
  s.(sprintf("k%d", i)) = repmat("x", 1, mod(i, 30));
end
c = cell(1, many);
for i = 1:many
  c{i} = sprintf("%d", mod(i * 7919, many));
end
v = [];
for i = 1:many / 3
  v(end + 1) = i;
end
A = reshape(mod((1:250000) * 31, 97), 500, 500);
B = A * A';
printf("%d %d %d %d\n", numel(fieldnames(s)), numel(unique(c)), sum(v), sum(B(:)));
