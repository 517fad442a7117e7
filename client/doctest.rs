// Runs an example of the documentation with its own server, a client and the address of the server. Included as an
// expression: a function that takes the example.
{
    fn run(example: impl AsyncFnOnce(::waymaker_client::Client, &str) -> ::waymaker_client::Result<()>) {
        use ::clap::Parser;

        let directory = ::tempfile::tempdir().unwrap();
        let socket = directory.path().join("socket");
        let flags = ["waymaker-server", "--listen", "127.0.0.1:0", "--unix", socket.to_str().unwrap()];
        let without = ["--data-dir", "none", "--grpc-listen", "none", "--http-listen", "none"];
        let options = ::waymaker_server::options::Options::parse_from(flags.into_iter().chain(without));
        ::std::thread::spawn(move || ::waymaker_server::server::run(&options).unwrap());
        let url = format!("waymaker+unix://{}", socket.display());
        // Several threads, since an example that blocks holds up its own.
        let runtime =
            ::tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let ran = runtime.block_on(async {
            let client = loop {
                match ::waymaker_client::Client::builder().owner("example").connect(&url).await {
                    Ok(client) => break client,
                    // It is starting.
                    Err(_) => ::tokio::time::sleep(::std::time::Duration::from_millis(1)).await,
                }
            };
            example(client, &url).await
        });
        if let Err(error) = ran {
            panic!("{error}");
        }
    }
    run
}
