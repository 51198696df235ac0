//! The examples at the end of each command's help, as they stand on `docs/commands.md`.

use super::scenes::{EMPTY, FUSE, Scene, UUID};

const HELP: Scene = Scene { page: "docs/commands.md", ..EMPTY };

const ARRAYS_TOML: &str = "home; braid stop home
    printf '[array.home]\\nmembers = [\"%s\", \"%s\", \"%s\"]\\n' \"$LAB\"/dev/sd{a,b,c} \\
        >etc/braid/arrays.toml
    cp etc/braid/arrays.toml .";

const EXPORT: Scene = Scene {
    before: "home; mkdir mnt/home etc/braid/tls
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 \\
            -subj /CN=braid -keyout etc/braid/tls/server-key.pem \\
            -out etc/braid/tls/server-cert.pem 2>/dev/null
        cp etc/braid/tls/server-cert.pem etc/braid/tls/ca-cert.pem",
    swaps: &[
        ("group=backup", "group=$(id -gn)"),
        ("GiB", "MiB"),
        ("0.0.0.0:10809", "$NET.1:$PORT"),
    ],
    // The examples stand beside each other: two that write may not overlap.
    hooks: &[
        (
            "braid export home add nbd:unix:/run/vms.nbd",
            "braid export home remove nbd:unix:$LAB/run/home.nbd",
        ),
        ("braid export home add nbd:tcp", "braid export home remove nbd:unix:$LAB/run/vms.nbd"),
        (
            "braid export home remove nbd:unix:/run/home.nbd",
            "braid export home add nbd:unix:$LAB/run/home.nbd",
        ),
    ],
    needs: &[FUSE, "openssl"],
    ..HELP
};

/// Scenes of commands for stopped arrays.
pub(super) const STORED: &[Scene] = &[
    Scene { headings: &["braid"], before: "disks", ..HELP },
    Scene { headings: &["braid create"], before: "disks; truncate -s 20M a.img b.img", ..HELP },
    Scene {
        headings: &["braid assemble"],
        before: "home; braid stop home; images 5; data; braid stop data",
        hooks: &[("braid assemble home --readonly", "braid stop home")],
        needs: &[FUSE],
        ..HELP
    },
    Scene { headings: &["braid examine"], before: "home; images 5; data", ..HELP },
    Scene {
        headings: &["braid update"],
        before: "home; braid stop home; data; braid stop data",
        ..HELP
    },
    Scene {
        headings: &["braid recover"],
        before: "lost; mkdir -p dev; cp a.img dev/sdb; cp b.img dev/sdc; cp c.img dev/sdd
            mv a.img disk1.img; mv b.img disk2.img; mv c.img disk3.img",
        needs: &["nbdcopy"],
        ..HELP
    },
    Scene { headings: &["braid rename"], before: "home; braid stop home", ..HELP },
    Scene { headings: &["braid zero-superblock"], before: "home; braid stop home", ..HELP },
    Scene {
        headings: &["braid cat"],
        before: "images 5; table_on_home; data; braid stop data",
        needs: &["hexdump"],
        ..HELP
    },
    Scene { headings: &["braid layout", "braid completions"], ..HELP },
    Scene { headings: &["braid man"], swaps: &[("/usr/local/share/man/man1", "$LAB/man")], ..HELP },
];

/// Scenes of commands for running arrays.
pub(super) const RUNNING: &[Scene] = &[
    Scene {
        headings: &["braid stop"],
        before: "home",
        hooks: &[("braid stop --all", "braid assemble home $LAB/dev/sd{a,b,c}")],
        ..HELP
    },
    Scene { headings: &["braid status", "braid detail"], before: "home", ..HELP },
    Scene { headings: &["braid check", "braid repair", "braid limit"], before: "home", ..HELP },
    Scene {
        headings: &["braid integrity"],
        before: "truncate -s 40M a.img b.img c.img
            braid create home --level 5 --raid-devices 3 --assume-clean a.img b.img c.img
            mkdir sums
            braid assemble home a.img b.img c.img",
        hooks: &[("braid integrity a.img", "braid stop home")],
        ..HELP
    },
    Scene { headings: &["braid export"], ..EXPORT },
    Scene { headings: &["braid export add"], ..EXPORT },
    Scene { headings: &["braid export remove"], ..EXPORT },
    Scene { headings: &["braid upgrade"], before: "home", ..HELP },
    Scene { headings: &["braid up", "braid down"], before: ARRAYS_TOML, ..HELP },
    Scene {
        headings: &["braid config check", "braid config units"],
        before: ARRAYS_TOML,
        swaps: &[("/run/systemd/generator", "$LAB/units")],
        ..HELP
    },
    Scene {
        headings: &["braid config join"],
        before: "home; braid add home $LAB/dev/sdd; braid remove home $LAB/dev/sdd; \
                 printf '[array.home]\\nscan = true\\n' >$BRAID_CONFIG",
        ..HELP
    },
    Scene {
        headings: &["braid monitor"],
        before: "home; (umask 077; openssl rand -hex 32 >etc/braid/web.token)",
        swaps: &[
            ("braid monitor", "for_a_moment braid monitor"),
            ("https://hooks.example.org/raid", "http://$NET.1:$PORT/"),
            ("9179", "$NET.2:$PORT"),
            ("8080", "$NET.3:$PORT"),
        ],
        needs: &["openssl"],
        ..HELP
    },
];

/// Scenes of commands for members.
pub(super) const MEMBERS: &[Scene] = &[
    Scene { headings: &["braid fail"], before: "home; data", ..HELP },
    Scene {
        headings: &["braid remove"],
        before: "home; braid fail home $LAB/dev/sdb",
        hooks: &[
            (
                "braid remove home failed",
                "braid fail home $LAB/dev/sdb || true
                braid add home $LAB/dev/sdd; braid status home --watch
                braid fail home $LAB/dev/sdd",
            ),
            (
                "braid remove home ./failed",
                "truncate -s 20M failed; braid add home ./failed
                braid status home --watch; braid fail home ./failed",
            ),
        ],
        ..HELP
    },
    Scene {
        headings: &["braid add"],
        before: "home; data",
        hooks: &[(
            "braid add home /dev/nvme0n1 --journal",
            "braid stop home
            braid create home -l 5 -n 3 --write-journal dev/sdh --assume-clean dev/sd[efg]
            braid assemble home dev/sd[efg] dev/sdh
            braid fail home dev/sdh; braid remove home dev/sdh",
        )],
        ..HELP
    },
    Scene {
        headings: &["braid re-add"],
        before: "disks
            braid create home -l 5 -n 3 --bitmap internal --assume-clean dev/sd[abc]
            braid assemble home $LAB/dev/sd{a,b,c}
            braid fail home $LAB/dev/sdb; braid remove home $LAB/dev/sdb",
        ..HELP
    },
    Scene {
        headings: &["braid grow"],
        before: "disks",
        hooks: &[
            (
                "braid grow home --size",
                "braid create home -l 1 -n 2 --size 8M --assume-clean dev/sd[ab]
                braid assemble home dev/sd[ab]",
            ),
            (
                "braid grow home --raid-devices",
                "braid stop home
                braid create home -l 5 -n 4 --force --assume-clean dev/sd[abcd]
                braid assemble home dev/sd[abcd]; braid limit home --pause",
            ),
            (
                "braid grow home --level 6",
                "braid stop home
                braid zero-superblock dev/sdd
                braid create home -l 5 -n 3 --force --assume-clean dev/sd[efg]
                braid assemble home dev/sd[efg]",
            ),
            (
                "braid grow home --level 5",
                "braid stop home
                braid create home -l 1 -n 2 --force --assume-clean dev/sd[ef]
                braid assemble home dev/sd[ef]",
            ),
            (
                "braid grow old",
                "braid create old -l 5 -n 3 --metadata 1.0 --force --assume-clean dev/sd[abc]
                braid assemble old dev/sd[abc]",
            ),
            (
                "braid grow home --array-size",
                "braid stop home; braid stop old
                braid create home -l 5 -n 4 --force --assume-clean dev/sd[abcd]
                braid assemble home dev/sd[abcd]",
            ),
            (
                "braid grow home --suspend-policy",
                "braid stop home
                braid create home -l 5 -n 3 -k ppl --force --assume-clean dev/sd[efg]
                braid assemble home dev/sd[efg]",
            ),
            ("braid grow data", "data"),
        ],
        swaps: &[("n6:7000", "$NET.6:$PORT"), ("/var/tmp/", "$LAB/")],
        ..HELP
    },
    Scene {
        headings: &["braid replace"],
        before: "home; braid add home $LAB/dev/sdd; data",
        ..HELP
    },
];

/// Scenes of commands for nodes and keys.
pub(super) const NODES: &[Scene] = &[
    Scene { headings: &["braid node"], ..HELP },
    Scene { headings: &["braid node status", "braid nodes"], before: "data", ..HELP },
    Scene { headings: &["braid node delete"], before: "data; braid stop data", ..HELP },
    Scene { headings: &["braid volume delete"], before: "data; braid stop data", ..HELP },
    Scene {
        headings: &["braid node forget"],
        before: "data; UUID=$(uuid data); braid stop data
            braid node delete $NET.1:$PORT data --array data",
        swaps: &[(UUID, "$UUID")],
        ..HELP
    },
    Scene { headings: &["braid node stop"], before: "node 1", ..HELP },
    Scene { headings: &["braid key new"], ..HELP },
    Scene {
        headings: &["braid key derive"],
        before: "braid key new etc/braid/cluster.key
            export BRAID_KEY=$LAB/etc/braid/cluster.key; data; UUID=$(uuid data)",
        swaps: &[(UUID, "$UUID")],
        ..HELP
    },
];
