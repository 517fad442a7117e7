//! Locktopus: sets of paths of a tree, over a WebSocket.
