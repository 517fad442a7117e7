//! All benchmarks: `cargo bench -p waymaker-bench`, optionally with a filter after `--`. `docs/benchmarking.md`
//! explains the numbers.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};
use waymaker_bench::{
    chosen_keys, client_lane, codec, hash_map, hot_key, inlet, keys, kinds, lane::Bench, pairs, resident,
    turns, worker,
};

/// The allocator of waymaker-server.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const RESIDENT: u32 = 1_000_000;

fn engine_pairs(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("engine");
    group.throughput(Throughput::Elements(1));
    let mut bench = pairs::warm(1000);
    group.bench_function("pair/1k keys", |bencher| {
        bencher.iter_custom(|count| timed(|| pairs::pairs(&mut bench, 1000, count)));
    });
    let mut resident = resident::Resident::new(RESIDENT);
    group.bench_function("pair/1M held", |bencher| {
        bencher.iter_custom(|count| timed(|| resident.singles(count)));
    });
    for batch_len in [16_usize, 128] {
        let pair_count = batch_len / 2;
        group.bench_function(BenchmarkId::new("pair/1M held, in batches", batch_len), |bencher| {
            bencher.iter_custom(|count| {
                timed(|| resident.batches(count.div_ceil(pair_count as u64), pair_count))
            });
        });
    }
    drop(resident);
    for size in [1000, RESIDENT] {
        let mut map = hash_map::Map::new(size);
        group.bench_function(BenchmarkId::new("hash map, remove and insert", size), |bencher| {
            bencher.iter_custom(|count| timed(|| map.pairs(count)));
        });
    }
    let mut hot_key = hot_key::HotKey::new(64);
    group.bench_function("hand-over/64 waiters", |bencher| {
        bencher.iter_custom(|count| timed(|| hot_key.hand_overs(count)));
    });
    group.finish();
}

/// Compares keys that all collide under the published hash with random keys. The guarantee is a factor of at most
/// 1.5.
fn engine_chosen_keys(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("chosen keys");
    group.throughput(Throughput::Elements(1));
    let mut random = chosen_keys::Table::new((0..u64::from(RESIDENT)).map(keys::key).collect());
    let mut chosen = chosen_keys::Table::new((0..RESIDENT).map(chosen_keys::of_one_slot).collect());
    for (name, table) in [("pair/1M random", &mut random), ("pair/1M of one slot", &mut chosen)] {
        group.bench_function(name, |bencher| bencher.iter_custom(|count| timed(|| table.pairs(count))));
    }
    group.finish();
    let mut ratios: Vec<f64> = (0..21)
        .map(|_| {
            let [random, chosen] = [&mut random, &mut chosen].map(|table| timed(|| table.pairs(100_000)));
            chosen.as_secs_f64() / random.as_secs_f64()
        })
        .collect();
    ratios.sort_unstable_by(f64::total_cmp);
    println!("colliding keys cost {:.2} times as much as random keys (median)", ratios[ratios.len() / 2]);
}

/// The other kinds of namespaces; compare with `engine/pair/1k keys`.
fn engine_kinds(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("kinds");
    group.throughput(Throughput::Elements(1));
    for depth in [1, 4] {
        let mut sets = kinds::Sets::new(depth);
        group.bench_function(BenchmarkId::new("tree pair, depth", depth), |bencher| {
            bencher.iter_custom(|count| timed(|| sets.pairs(count)));
        });
    }
    let mut bench = Bench::default();
    group.bench_function("pool pair", |bencher| {
        bencher.iter_custom(|count| timed(|| kinds::permits(&mut bench, count)));
    });
    let mut bench = Bench::default();
    group.bench_function("throttle", |bencher| {
        bencher.iter_custom(|count| timed(|| kinds::throttles(&mut bench, count)));
    });
    for key_count in [2, 8] {
        let mut bench = Bench::default();
        group.bench_function(BenchmarkId::new("several keys and their releases", key_count), |bencher| {
            bencher.iter_custom(|count| timed(|| kinds::several_keys(&mut bench, key_count, count)));
        });
    }
    group.finish();
}

fn codec_frames(criterion: &mut Criterion) {
    const PAIRS: u32 = 64;
    let mut group = criterion.benchmark_group("codec");
    group.throughput(Throughput::Elements(u64::from(PAIRS)));
    let mut bytes = Vec::new();
    group.bench_function("encode requests", |bencher| {
        bencher.iter(|| codec::encode_requests(PAIRS, black_box(&mut bytes)));
    });
    group.bench_function("decode requests", |bencher| {
        bencher.iter(|| codec::decode_requests(black_box(&bytes)));
    });
    group.bench_function("encode answers", |bencher| {
        bencher.iter(|| codec::encode_answers(PAIRS, black_box(&mut bytes)));
    });
    group.bench_function("decode answers", |bencher| {
        bencher.iter(|| codec::decode_answers(black_box(&bytes)));
    });
    group.finish();
}

/// Pairs through whole components, bytes in and bytes out; compare with `engine/pair/1k keys`.
fn whole_parts(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("parts");
    group.throughput(Throughput::Elements(1));
    for depth in [1, 128] {
        let mut pairs = worker::Pairs::new(depth);
        group.bench_function(BenchmarkId::new("worker pair, depth", depth), |bencher| {
            bencher.iter_custom(|count| timed(|| pairs.pairs(count.next_multiple_of(u64::from(depth)))));
        });
    }
    let mut pairs = worker::Pairs::durable(1);
    group.bench_function("worker pair, durable", |bencher| {
        bencher.iter_custom(|count| timed(|| pairs.pairs(count)));
    });
    let mut pairs = inlet::Pairs::new();
    group.bench_function("inlet pair", |bencher| {
        bencher.iter_custom(|count| timed(|| pairs.pairs(count)));
    });
    let mut pairs = client_lane::Pairs::new();
    group.bench_function("client pair", |bencher| {
        bencher.iter_custom(|count| timed(|| pairs.pairs(count)));
    });
    group.finish();
}

/// Clients on one thread per core, at least two, that all contend for one shard.
fn turns_against_hand_over(criterion: &mut Criterion) {
    let cores = available_parallelism().map_or(2, |cores| cores.get() as u64);
    let mut group = criterion.benchmark_group("turns");
    group.sample_size(20);
    let mut thread_counts = vec![2];
    thread_counts.extend([4, 8, 16, 32, 64].into_iter().filter(|threads| *threads <= cores));
    for threads in thread_counts {
        for batch_len in [1, 16, 128] {
            group.throughput(Throughput::Elements(threads * batch_len));
            let name = format!("{threads} threads, batches of {batch_len}");
            group.bench_function(BenchmarkId::new("by turns", &name), |bencher| {
                bencher.iter_custom(|count| timed(|| turns::by_turns(threads, count, batch_len)));
            });
            group.bench_function(BenchmarkId::new("by owner", &name), |bencher| {
                bencher.iter_custom(|count| timed(|| turns::by_owner(threads, count, batch_len)));
            });
        }
    }
    group.finish();
}

fn timed(work: impl FnOnce() -> u64) -> Duration {
    let start = Instant::now();
    black_box(work());
    start.elapsed()
}

criterion_group!(
    benches,
    engine_pairs,
    engine_chosen_keys,
    engine_kinds,
    codec_frames,
    whole_parts,
    turns_against_hand_over
);
criterion_main!(benches);
