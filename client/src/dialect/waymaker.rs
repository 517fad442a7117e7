//! The gRPC contract `waymaker.WaymakerService`.
