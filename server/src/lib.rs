//! The edge of Waymaker: threads, sockets, clock, files; the binary front end; waymaker-server.
