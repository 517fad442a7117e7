//! Which sets wait for each other, and who is next.

use super::client::{Locker, each_size};
use crate::harness::Server;

fn lockers<const N: usize>(server: &Server, namespace: &str) -> [Locker; N] {
    std::array::from_fn(|_| Locker::connect(server, namespace))
}

#[test]
fn sets_conflict_if_their_paths_overlap_and_one_is_written() {
    for server in each_size() {
        for (row, (held, asked, is_free)) in [
            ("W a/b/c", "W a/b/c", false),
            ("W []", "W a/b/c", false),
            ("W []", "W []", false),
            ("W a/b", "W a/b/2", false),
            ("W a/b/2", "W a/b", false),
            ("W a/b/1", "W a/b/2", true),
            ("R a/b/1", "R a/b/2", true),
            ("R a/b", "R a/b", true),
            ("R a", "W a/1/x", false),
            ("R a, W a/b", "R a/c", true),
            ("R a, W a/b", "R a", false),
            ("R a, W a/b", "R a/b", false),
            ("R [], W c", "R []", false),
            ("R a", "R a, W a", false),
            ("W 2", "R 1, W 3, W []", false),
            ("W 2/1, R 2", "R 2, R 2/1/1", false),
            ("W \"\"", "W a", true),
            ("W \"\"", "W []", false),
            ("W \"\"", "W \"\"/\"\"", false),
            ("W ab", "W a", true),
        ]
        .into_iter()
        .enumerate()
        {
            let [mut holder, mut asker] = lockers(&server, &format!("row{row}"));
            holder.take(held);
            assert_eq!(asker.is_free(asked), is_free, "{asked} while {held} is held");
            holder.release();
            assert!(asker.is_free(asked), "{asked} after {held}");
        }
    }
}

#[test]
fn resources_of_one_set_do_not_conflict_and_may_repeat() {
    for server in each_size() {
        let [mut locker, mut other] = lockers(&server, "test");
        locker.take("W a, R a, W a/b, W a, R []");
        assert!(!other.is_free("R a") && !other.is_free("W b") && other.is_free("R b"));
        locker.release();
        assert!(other.is_free("W []"));
    }
}

#[test]
fn a_set_is_granted_as_a_whole_and_in_order_of_arrival() {
    for server in each_size() {
        let [mut first, mut second, mut third, mut beside] = lockers(&server, "test");
        first.take("W a1, W a2, W a3");
        second.queue("R a3, R a4, R a5");
        // Nobody holds a5, but somebody was there before.
        third.queue("W a5, W a6, W a7");
        beside.take("W a8");
        third.expect_nothing();
        first.release();
        second.acquire();
        third.expect_nothing();
        second.release();
        third.acquire();
    }
}

#[test]
fn a_read_waits_behind_a_waiting_read() {
    for server in each_size() {
        let [mut first, mut writer, mut whole, mut reader] = lockers(&server, "test");
        first.take("R a");
        writer.queue("W a/1, W a/2");
        whole.queue("R []");
        reader.queue("R a/3");
        first.release();
        writer.acquire();
        reader.expect_nothing();
        writer.release();
        whole.acquire();
        reader.acquire();
    }
}

#[test]
fn readers_are_granted_together_and_a_writer_after_all_of_them() {
    for server in each_size() {
        let mut first = Locker::connect(&server, "test");
        first.take("W a");
        let sets = ["R a/b", "R a/b/1", "R a/b/2", "R a/b/2/b", "R a/b", "R a/b/3", "R a/b/2/b/c", "R []"];
        let mut readers: Vec<_> = sets
            .iter()
            .map(|set| {
                let mut reader = Locker::connect(&server, "test");
                reader.queue(set);
                reader
            })
            .collect();
        let mut writer = Locker::connect(&server, "test");
        writer.queue("W a/b/2/b/c");
        first.release();
        readers.iter_mut().for_each(|reader| {
            reader.acquire();
        });
        for reader in &mut readers {
            writer.expect_nothing();
            reader.release();
        }
        writer.acquire();
    }
}

#[test]
fn a_release_grants_all_unblocked_waiters() {
    for server in each_size() {
        let [mut holder, mut one, mut two, mut three] = lockers(&server, "test");
        holder.take("W []");
        one.queue("W a");
        two.queue("W b");
        three.queue("R a/b, R b/c");
        holder.release();
        one.acquire();
        two.acquire();
        three.expect_nothing();
        two.release();
        three.expect_nothing();
        one.release();
        three.acquire();
    }
}
