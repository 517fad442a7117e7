//! CUT: the power fails under load, so whatever was not synced is gone.

use super::client::RigClient;
use super::disk::{MountedImage, can_mount};
use super::load::Load;
use super::site::{any_shape, count, judge, start};

#[test]
fn no_promise_is_broken_by_power_cuts_under_ext4() {
    if can_mount("power cuts under ext4", "mkfs.ext4") {
        cut_power_again_and_again("ext4", &MountedImage::ext4(256));
    }
}

#[test]
fn no_promise_is_broken_by_power_cuts_under_xfs() {
    if can_mount("power cuts under XFS", "mkfs.xfs") {
        cut_power_again_and_again("XFS", &MountedImage::xfs());
    }
}

fn cut_power_again_and_again(name: &str, disk: &MountedImage) {
    let directory = disk.path().join("data");
    let load = Load::new(RigClient::run);
    for _ in 0..count("WAYMAKER_CUTS", 4) {
        let mut server = start(&directory, &any_shape());
        load.turn_to(&server);
        assert!(load.wait_for_grants(rand::random_range(0..300), &mut server), "the server ended by itself");
        disk.cut_power();
        server.signal("KILL");
        server.wait();
        disk.remount();
    }
    let mut server = start(&directory, &any_shape());
    load.turn_to(&server);
    assert!(load.wait_for_grants(100, &mut server), "the server ended by itself");
    judge(&format!("power cuts under {name}"), &load.stop());
    server.signal("KILL");
    server.wait();
}
