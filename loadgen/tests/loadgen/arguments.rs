//! Invalid arguments fail with a message that names the problem and the remedy.

use crate::program::run;

#[test]
fn reports_a_target_without_a_server() {
    // The kernel never assigns port 1 to a socket that asks for any free port.
    let ended = run(&["--target", "waymaker://127.0.0.1:1"]);
    ended.assert_refused("no server listens at waymaker://127.0.0.1:1");
    ended.assert_refused("waymaker-server --listen 127.0.0.1:1");
    run(&["--target", "redis://127.0.0.1:1"]).assert_refused("redis-server --port 1");
    run(&["--target", "etcd://127.0.0.1:1"]).assert_refused("etcd --listen-client-urls http://127.0.0.1:1");
}

#[test]
fn names_invalid_values() {
    for (arguments, words) in [
        (&["--target", "zookeeper://127.0.0.1:1"][..], "unknown scheme \"zookeeper\""),
        (&["--target", "127.0.0.1:1"], "scheme://host:port"),
        (&["--connections", "0"], "--connections"),
        (&["--depth", "5000"], "--depth"),
        (&["--duration", "soon"], "--duration"),
        (&["--duration", "0s"], "--duration is 0s"),
        (&["--rate", "0"], "the rate is 0"),
        (&["--keys", "10"], "--keys is 10"),
        (&["--key-size", "4"], "--key-size"),
        (&["--workload", "hot", "--keys", "7"], "hot has one key"),
        (&["--workload", "hot", "--window", "burst", "--depth", "2"], "use --window sliding"),
        (&["--rate", "1k", "--window", "burst"], "--window burst"),
        (&["--workload", "rw", "--target", "redis://127.0.0.1:1"], "Redis has no shared locks"),
        (&["--workload", "hot", "--target", "echo://127.0.0.1:1"], "an echo server holds no locks"),
        (&["--workload", "tree", "--target", "redis://127.0.0.1:1"], "Redis has no single command"),
        (&["--workload", "throttle", "--target", "echo://127.0.0.1:1"], "an echo server holds no locks"),
        (&["--workload", "churn", "--target", "redis://127.0.0.1:1"], "Redis has no single command"),
        (&["--workload", "tree", "--keys", "7"], "follows from --fan-out and --tree-depth"),
        (&["--workload", "tree", "--fan-out", "1000", "--tree-depth", "3"], "too many paths"),
        (&["--workload", "multi", "--keys", "3"], "--items is 4, but there are only 3 keys"),
        (&["--workload", "multi", "--window", "burst", "--depth", "2"], "use --window sliding"),
        (
            &["--workload", "semaphore", "--permits", "11"],
            "--permits is 11, but each pool has a --capacity of 10",
        ),
        (&["--workload", "hot", "--keys", "distinct"], "hot has one key"),
        (&["--workload", "rw", "--keys", "distinct"], "only the workloads pair, stream and churn"),
        (&["--workload", "pair", "--read-share", "5"], "--read-share has no effect with the workload pair"),
        (&["--workload", "throttle", "--capacity", "5"], "only to semaphore"),
        (&["--workload", "expiry-storm", "--keys", "5", "--waiters", "6"], "--waiters is 6"),
        (&["--workload", "churn", "--depth", "2"], "leave out --rate and --depth"),
        (&["--scope", "local", "--workload", "throttle"], "throttle takes no locks"),
        (&["--scope", "local", "--workload", "churn"], "--scope local: the workload churn"),
        (&["--scope", "local", "--workload", "expiry-storm"], "--scope local: the workload expiry-storm"),
        (&["--scope", "local", "--target", "echo://127.0.0.1:1"], "--sync FILE"),
        (&["--scope", "global"], "possible values: ephemeral, local, quorum"),
        (&["--target", "etcd://127.0.0.1:1", "--workload", "rw"], "pair, put, hot and renew only"),
        (&["--workload", "put"], "--target etcd://HOST:PORT"),
        (&["--workload", "rw", "--target", "consul://127.0.0.1:1"], "Consul has no shared locks"),
        (&["--workload", "tree", "--target", "consul://127.0.0.1:1"], "use pair or hot"),
        (
            &["--workload", "hot", "--depth", "2", "--target", "consul://127.0.0.1:1"],
            "Consul grants a lock again to the session",
        ),
        (
            &["--depth", "2", "--target", "postgres://127.0.0.1:1"],
            "PostgreSQL grants a lock again to the connection",
        ),
        (&["--workload", "multi", "--target", "postgres://127.0.0.1:1"], "pair, hot and rw only"),
        (&["--scope", "local", "--target", "postgres://127.0.0.1:1"], "end with their connection"),
        (&["--scope", "local", "--target", "slock://127.0.0.1:1"], "before it writes the lock to its file"),
        (&["--workload", "multi", "--target", "slock://127.0.0.1:1"], "pair, hot and rw only"),
        (&["--redis-release", "nonsense"], "script, del"),
        (&["obtain", "consul", "nonsense"], "possible values: redis, etcd, postgres, consul, slock"),
        (&["--target", "etcd://127.0.0.1:1", "--spin"], "--spin"),
        (&["--target", "etcd://127.0.0.1:1", "--depth", "2", "--window", "burst"], "sliding window only"),
        (&["--target", "grpc://127.0.0.1:1", "--workload", "hot"], "pair, stream and held-streams only"),
        (&["--target", "grpc://127.0.0.1:1", "--workload", "held-streams", "--keys", "3"], "--streams"),
        (&["--target", "locktopus://127.0.0.1:1", "--depth", "2"], "one lock at a time"),
        (&["--target", "locktopus://127.0.0.1:1", "--workload", "tree"], "pair, hot, rw and idle only"),
        (&["--target", "locktopus://127.0.0.1:1", "--scope", "local"], "no durable locks"),
        (&["--target", "websocket-echo://127.0.0.1:1", "--workload", "hot"], "an echo server holds no locks"),
        (&["--workload", "stream"], "only gRPC targets have streams"),
        (&["--workload", "pair", "--streams", "5"], "only to held-streams"),
        (&["--workload", "nonsense"], "expiry-storm"),
        (&["compare", "--spawn", "--dir", "."], "--dir has no effect"),
        (&["compare", "--scope", "local", "--spawn", "--dir", "/nonexistent"], "does not exist"),
        (&["compare", "--targets", "etcd"], "a name needs --spawn"),
        (&["compare", "--targets", "grpc://127.0.0.1:1"], "with --front only"),
        (&["compare", "--front", "grpc", "--targets", "redis://127.0.0.1:1"], "not compared with it"),
        (&["compare", "--front", "grpc", "--scope", "local"], "leave out --scope"),
        (&["compare", "--front", "locktopus", "--spawn", "--dir", "."], "--dir has no effect"),
        (&["compare"], "--spawn"),
        (&["compare", "--html", "/dev/null"], "--spawn"),
        (
            &["compare", "--html", "/dev/null", "--spawn", "--targets", "zookeeper"],
            "etcd, consul, postgres, slock",
        ),
        (
            &["compare", "--html", "/dev/null", "--targets", "mysql://127.0.0.1:1"],
            "etcd, consul, postgres, slock",
        ),
        (&["compare", "--html", "/dev/null", "--spawn", "--targets", "echo"], "is not part of a contest"),
        (
            &["compare", "--html", "/dev/null", "--targets", "redis://127.0.0.1:1,redis://127.0.0.1:2"],
            "twice",
        ),
        (&["compare", "--targets", "consul", "--spawn", "--rows", "1x1"], "--rows"),
        (&["compare", "--targets", "slock", "--spawn", "--front", "grpc"], "--front"),
        (&["compare", "--html", "/nonexistent/page.html", "--spawn"], "--html: cannot write /nonexistent"),
        (&["compare", "--html", "/", "--spawn"], "it is a directory"),
        (&["compare", "--spawn", "--markdown", "/nonexistent/x"], "--markdown: cannot write /nonexistent/x"),
        (&["compare", "--spawn", "--markdown", "x", "--json", "x"], "both name the same file"),
        (&["--json", "/nonexistent/x"], "--json: cannot write /nonexistent/x"),
        (&["compare", "--targets", "consul", "--spawn", "--json", "/nonexistent/x"], "--json: cannot write"),
        (&["--workload", "renew", "--keys", "5"], "each of the 50 connections needs at least one key"),
        (&["compare", "--targets", "redis"], "a name needs --spawn"),
        (&["compare", "--spawn", "--rows", "50"], "50x16"),
        (&["compare", "--spawn", "--server-bin", "/nonexistent"], "--server-bin"),
        (&["compare", "--spawn", "--load-core", "1000"], "core 1000"),
        (&["compare", "--baseline-bin", "/nonexistent"], "bench/baseline builds the baseline"),
        (&["compare", "--baseline-bin", "/nonexistent", "--targets", "redis"], "leave out --targets"),
        (&["compare", "--baseline-bin", "/nonexistent", "--html", "/dev/null"], "use --markdown or --json"),
        (&["compare", "--baseline-bin", "/nonexistent", "--library"], "not part of the server"),
        (&["compare", "--baseline-bin", "/nonexistent", "--scope", "quorum"], "use --scope local"),
        (&["compare", "--baseline-bin", "/nonexistent", "--dir", "."], "only with --scope local"),
        (
            &["compare", "--baseline-bin", "/nonexistent", "--front", "grpc", "--scope", "local"],
            "leave out --scope",
        ),
        (&["compare", "--baseline-bin", "/nonexistent", "--rounds", "14"], "at least 15 rounds"),
        (&["compare", "--rights", "--baseline-bin", "/nonexistent"], "cannot be used with"),
        (&["compare", "--rights", "--targets", "redis"], "--targets does not work with --rights"),
        (&["compare", "--rights", "--scope", "quorum"], "--scope quorum does not work with --rights"),
    ] {
        run(arguments).assert_refused(words);
    }
}

#[test]
fn help_of_compare_describes_the_exit_codes() {
    let ended = run(&["compare", "--help"]);
    ended.assert_success();
    for words in ["--baseline-bin", "all rows also passed", "slower by more than 3 %", "inconclusive"] {
        assert!(ended.stdout.contains(words), "no {words:?} in {ended:#?}");
    }
}

#[test]
fn help_has_examples_and_all_workloads() {
    let ended = run(&["--help"]);
    ended.assert_success();
    for words in [
        "Examples:",
        "compare --spawn",
        "--scope local",
        "--target etcd://",
        "--target postgres://",
        "--target consul://",
        "slock://HOST:PORT",
        "compare --scope local --spawn",
        "--rate",
        "exit code is 1",
        "--workload tree --tree-depth",
        "--workload multi --items",
        "--workload semaphore",
        "--workload throttle",
        "--workload churn",
        "--workload expiry-storm",
        "--workload readers-storm",
        "--target grpc://",
        "--target locktopus://",
        "--workload held-streams",
        "compare --front grpc",
        "compare --spawn --html report.html",
        "--workload renew",
    ] {
        assert!(ended.stdout.contains(words), "no {words:?}");
    }
    assert!(!ended.stdout.contains("echo-server"), "internal subcommands stay hidden");
}
