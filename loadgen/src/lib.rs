//! waymaker-loadgen: measures acquire latency and throughput of Waymaker and of others.
