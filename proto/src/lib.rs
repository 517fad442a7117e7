//! The gRPC contracts of Waymaker and the code generated from them; nothing else.
