# Fills the server at socket $1 with $2 requests a command, deletes a part, asks questions that a
# correct server must answer, and ends it. The keys are random, so no question depends on them.
load() {
  redis-benchmark -s "$1" -q -n "$2" -r 100000 -d "$3" -P 32 -c 10 -t "$4" >/dev/null || exit 1
}
tries=0
until [ -S "$1" ] && [ "$(redis-cli -s "$1" ping 2>&1)" = PONG ]; do
  tries=$((tries + 1))
  if [ $tries -gt 200 ]; then
    echo "the server did not answer" >&2
    exit 1
  fi
  sleep 0.05
done
load "$1" "$2" 200 set,get,lpush,hset,sadd,zadd,lrange_100
redis-cli -s "$1" llen mylist
load "$1" "$2" 333 set,lpop,spop
redis-cli -s "$1" llen mylist
redis-cli -s "$1" lindex mylist 0
redis-cli -s "$1" lindex mylist -1
redis-cli -s "$1" shutdown nosave
