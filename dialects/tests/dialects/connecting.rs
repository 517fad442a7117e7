//! Connecting to a server that speaks another protocol.

use waymaker_dialects::locket::Locket;
use waymaker_dialects::locktopus::LocktopusClient;
use waymaker_dialects::waymaker::Waymaker;

use crate::patience::soon;
use crate::real::server;

/// Connects each client to every port except its own.
#[tokio::test]
async fn every_client_names_the_protocol_of_a_wrong_port() {
    let server = server!(None, &["--grpc-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"]);
    let binary = server.url().trim_start_matches("waymaker://");
    let [grpc, http] = ["grpc", "http"].map(|front| server.listener(front));
    for (address, name) in [(binary, "the binary protocol of Waymaker"), (http, "HTTP,")] {
        let waymaker = soon(Waymaker::connect(&format!("http://{address}"))).await.unwrap_err();
        let locket = soon(Locket::connect(&format!("http://{address}"))).await.unwrap_err();
        for error in [waymaker.to_string(), locket.to_string()] {
            assert!(error.contains(name) && error.contains("not gRPC") && error.contains("7421"), "{error}");
        }
    }
    for (address, name) in [(binary, "the binary protocol of Waymaker"), (grpc, "HTTP/2 (gRPC)")] {
        let url = format!("ws://{address}/v1?namespace=n");
        let error = soon(LocktopusClient::connect(&url)).await.unwrap_err().to_string();
        assert!(error.contains(name) && error.contains("not WebSocket") && error.contains("7422"), "{error}");
    }
}
