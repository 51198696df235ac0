//! Examples that stand at the end of a command's help and of its man page. Tests type each of them.

pub(super) const BRAID: &str = "\
Examples:
  braid create home --level 5 --raid-devices 3 /dev/sda /dev/sdb /dev/sdc
  braid assemble home /dev/sda /dev/sdb /dev/sdc --export nbd:unix:/run/home.nbd
  braid status home
  braid stop home

Messages with an id, as BRAID-104, are explained by `braid help BRAID-104`.
Exit status: 0 done; 1 refused or failed; 2 wrong usage.
check --wait: 1 also when something differs or could not be read; repair --wait: could not be read.
detail --test: 0 healthy, 1 degraded, 2 not usable, 4 no such array.";

pub(super) const ASSEMBLE: &str = "\
Examples:
  braid assemble home /dev/sda /dev/sdb /dev/sdc --export nbd:unix:/run/home.nbd
  braid assemble home --scan --export ublk
  braid assemble --explain /dev/sda /dev/sdb /dev/sdc
  braid assemble home --readonly a.img b.img c.img --export fuse:/mnt
  braid assemble data node://10.0.0.{1,2,3,4,5}:7000 --export nbd:unix:/run/data.nbd";

pub(super) const STATUS: &str = "\
Examples:
  braid status
  braid status home --watch
  braid status home --json";

pub(super) const DETAIL: &str = "\
Examples:
  braid detail home
  braid detail home --test
  braid detail --scan";

pub(super) const EXAMINE: &str = "\
Examples:
  braid examine /dev/sda
  braid examine a.img b.img --json
  braid examine --scan
  braid examine node://10.0.0.1:7000/data";

pub(super) const FAIL: &str = "\
Examples:
  braid fail home /dev/sdb
  braid fail data node://10.0.0.2:7000";

pub(super) const RE_ADD: &str = "\
Example:
  braid re-add home /dev/sdb";

pub(super) const CHECK: &str = "\
Examples:
  braid check home --wait
  braid check home --stop";

pub(super) const REPAIR: &str = "\
Example:
  braid repair home --wait";

pub(super) const TOP: &str = "\
Example:
  braid top";

pub(super) const CAT: &str = "\
Examples:
  braid cat a.img b.img c.img > home.raw
  braid cat a.img b.img c.img --offset 1M --length 4K | hexdump -C
  braid cat --list a.img b.img c.img
  braid cat --part p1 a.img b.img c.img > files.raw
  braid cat node://10.0.0.{1,2,3,4,5}:7000/data | sha256sum";

pub(super) const LAYOUT: &str = "\
Examples:
  braid layout --level 5 --raid-devices 4
  braid layout --level 6 --raid-devices 5 --layout xor2d --schedule encoder";

pub(super) const BENCH: &str = "\
Examples:
  braid bench all --quick --report target/bench-quick
  braid bench cluster --level 6 --nodes 5 --link 500M --schedules client,encoder";

pub(super) const NODE: &str = "\
Examples:
  braid node --listen 10.0.0.1:7000 --store /srv/braid
  braid node --witness --listen 10.0.0.9:7000 --store /srv/braid-votes";

pub(super) const NODE_STATUS: &str = "\
Examples:
  braid node status 10.0.0.1:7000 10.0.0.2:7000
  braid nodes 10.0.0.1:7000 --json";

pub(super) const NODE_DELETE: &str = "\
Examples:
  braid node delete 10.0.0.1:7000 data --array data
  braid volume delete 10.0.0.2:7000 data --force";

pub(super) const NODE_FORGET: &str = "\
Example:
  braid node forget 10.0.0.1:7000 2b1f3c80:9e7d4a65:0c4b8f12:d3a6e957";

pub(super) const NODE_STOP: &str = "\
Example:
  braid node stop 10.0.0.1:7000";

pub(super) const KEY_NEW: &str = "\
Example:
  braid key new /etc/braid/cluster.key";

pub(super) const KEY_DERIVE: &str = "\
Example:
  braid key derive --array 2b1f3c80:9e7d4a65:0c4b8f12:d3a6e957 vm7.key";

pub(super) const CONFIG_UNITS: &str = "\
Example:
  braid config units /run/systemd/generator";

pub(super) const CONFIG_JOIN: &str = "\
Example:
  braid config join /dev/sdd";

pub(super) const CONFIG_PROBE: &str = "\
Example:
  braid config probe /dev/sda";

pub(super) const COMPLETIONS: &str = "\
Example:
  braid completions bash > braid.bash";

pub(super) const MAN: &str = "\
Example:
  braid man /usr/local/share/man/man1";

pub(super) const INTEGRITY: &str = "\
Examples:
  braid integrity home on --store sums
  braid integrity home status
  braid integrity home verify --wait
  braid integrity a.img b.img c.img off";
