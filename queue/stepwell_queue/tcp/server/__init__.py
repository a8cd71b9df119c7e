"""The server: one process that owns the file and serves it to workers and clients."""

from stepwell_queue.tcp.server.config import ServerConfig as ServerConfig
from stepwell_queue.tcp.server.server import Server as Server
from stepwell_queue.tcp.server.server import open_server as open_server
