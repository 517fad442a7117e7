//! Stand-ins for the programs of a reader: each records its call and succeeds.

use std::fs;
use std::path::{Path, PathBuf};

use crate::executable;
use crate::systems::Running;

/// Programs that examples call and that the tests must not.
const PROGRAMS: [&str; 9] =
    ["cargo", "createdb", "docker", "jq", "npm", "pg_dump", "pip", "scheduler", "systemctl"];

/// The folders of an example: its own, and one of programs.
pub(crate) struct Stubs {
    /// First folder of PATH.
    pub(crate) bin: PathBuf,
    /// The working directory.
    pub(crate) work: PathBuf,
    /// File with the name of each program that was called, one on a line.
    calls: PathBuf,
}

impl Stubs {
    pub(crate) fn new(directory: &Path, ctl: &Path, server: &Path) -> Self {
        let stubs =
            Self { bin: directory.join("bin"), work: directory.join("work"), calls: directory.join("calls") };
        fs::create_dir(&stubs.bin).unwrap();
        fs::create_dir(&stubs.work).unwrap();
        fs::write(&stubs.calls, "").unwrap();
        for program in PROGRAMS {
            stubs.write_stub(&stubs.bin.join(program), program);
        }
        // A watch never ends by itself.
        let ctl = ctl.display();
        executable::write(
            &stubs.bin.join("waymaker-ctl"),
            format!(
                "#!/bin/bash\ncase \" $* \" in\n  *\" locks watch \"*) timeout 1 {ctl} \"$@\"; [[ $? == 124 ]] ;;\n  *) \
                 exec {ctl} \"$@\" ;;\nesac\n"
            ),
        );
        // Its flags are checked, and nothing is started.
        let server = server.display();
        executable::write(
            &stubs.bin.join("waymaker-server"),
            format!("#!/bin/sh\nexec {server} \"$@\" --help >/dev/null\n"),
        );
        stubs
    }

    /// Lets clients of Redis find this server.
    pub(crate) fn add_redis(&self, redis: &Running, redis_cli: &Path) {
        let (program, port) = (redis_cli.display(), redis.value("REDIS_PORT"));
        executable::write(
            &self.bin.join("redis-cli"),
            format!("#!/bin/sh\nexec {program} -p {port} \"$@\"\n"),
        );
    }

    /// Writes the programs `./NAME` that a block calls and does not write itself. Returns their names.
    pub(crate) fn prepare(&self, text: &str) -> Vec<String> {
        fs::write(&self.calls, "").unwrap();
        let names = text.split(|character: char| character.is_whitespace() || "'\"();".contains(character));
        let mut called: Vec<String> = names
            .filter_map(|word| word.strip_prefix("./"))
            .map(|name| name.trim_end_matches([',', '.']).to_owned())
            .filter(|name| !name.is_empty() && !name.contains('/') && !text.contains(&format!(">{name}")))
            .collect();
        called.sort();
        called.dedup();
        called.retain(|name| {
            let path = self.work.join(name);
            // A block before this one may have written the program.
            let is_own = path.exists() && !fs::read_to_string(&path).unwrap().contains("# stub");
            if !is_own {
                self.write_stub(&path, name);
            }
            !is_own
        });
        called
    }

    /// Returns whether a program has been called since the last `prepare`.
    pub(crate) fn was_called(&self, name: &str) -> bool {
        fs::read_to_string(&self.calls).unwrap().lines().any(|line| line == name)
    }

    fn write_stub(&self, path: &Path, name: &str) {
        executable::write(path, format!("#!/bin/sh\n# stub\necho '{name}' >>'{}'\n", self.calls.display()));
    }
}
