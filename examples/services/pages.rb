# A web service: pages.rb PORT. Each page is a table as JSON; the last 32 MiB of pages are kept.
require "json"
require "socket"

KEPT = 32 << 20
PAGES = {}
LOCK = Mutex.new
$kept = 0

def page(number, rows)
  words = Random.new(number)
  table = Array.new(rows) { |i| {id: i, name: "row #{words.rand(1000)}", text: "x" * words.rand(400)} }
  JSON.generate({page: number, rows: table})
end

def serve(client)
  while (request = client.gets)
    nil until client.gets.strip.empty?
    number, rows = request.split[1].delete_prefix("/").split("/").map(&:to_i)
    body = page(number, rows)
    LOCK.synchronize do
      PAGES[number] = body
      $kept += body.bytesize
      $kept -= PAGES.shift[1].bytesize while $kept > KEPT
    end
    client.write("HTTP/1.1 200 OK\r\nContent-Length: #{body.bytesize}\r\n\r\n", body)
  end
ensure
  client.close
end

server = TCPServer.new("127.0.0.1", ARGV[0].to_i)
loop { Thread.new(server.accept) { |client| serve(client) } }
