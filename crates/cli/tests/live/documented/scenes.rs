//! Commands on the pages, each with the state that it needs. All commands below a heading are
//! typed, in order, in a directory of their own.

/// Some headings of a page.
#[derive(Debug)]
pub(super) struct Scene {
    pub(super) page: &'static str,
    pub(super) headings: &'static [&'static str],
    /// Preparation, in the words of `stage.sh`.
    pub(super) before: &'static str,
    /// Commands to run before each line with this beginning.
    pub(super) hooks: &'static [(&'static str, &'static str)],
    /// Words that stand for others.
    pub(super) swaps: &'static [(&'static str, &'static str)],
    /// Lines that begin so are to be refused.
    pub(super) refused: &'static [&'static str],
    /// Programs and devices, without which it cannot be played.
    pub(super) needs: &'static [&'static str],
}

pub(super) const EMPTY: Scene =
    Scene { page: "", headings: &[], before: "", hooks: &[], swaps: &[], refused: &[], needs: &[] };

pub(super) const FUSE: &str = "/dev/fuse";
/// The UUID of an array that stands on the pages.
pub(super) const UUID: &str = "2b1f3c80:9e7d4a65:0c4b8f12:d3a6e957";
/// A member that has failed for good, another one in its place, and images of all of them.
const HEAP: &str = "images 5
    truncate -s 40M d.img
    braid assemble home a.img b.img c.img
    braid fail home b.img; braid remove home b.img; braid add home d.img
    braid status home --watch; braid stop home";

pub(super) const README: &[Scene] = &[
    Scene { page: "README.md", headings: &["The first array"], ..EMPTY },
    Scene { page: "docs/facts.md", headings: &["Backups"], before: "home", ..EMPTY },
];

pub(super) const START: &[Scene] = &[Scene {
    page: "docs/start.md",
    headings: &["The first array", "Lose a disk, and put another in", "Stop it"],
    needs: &[FUSE, "nbdinfo"],
    ..EMPTY
}];

pub(super) const LOCAL: &[Scene] = &[
    Scene {
        page: "docs/integrity.md",
        headings: &["Checksums beside md's data", "What there is not yet"],
        before: "truncate -s 40M a.img b.img c.img",
        ..EMPTY
    },
    Scene {
        page: "docs/integrity.md",
        headings: &["Arrays that exist already"],
        before: "truncate -s 40M a.img b.img c.img
            braid create home --level 5 --raid-devices 3 --assume-clean a.img b.img c.img
            braid assemble home a.img b.img c.img",
        ..EMPTY
    },
    Scene {
        page: "docs/local.md",
        headings: &["Create", "Start and look", "Members", "Check and repair", "From md and to md"],
        before: "disks",
        hooks: &[("braid fail", "braid status home --watch")],
        ..EMPTY
    },
    Scene {
        page: "docs/write-hole.md",
        headings: &["A journal that writes back"],
        before: "disks
            braid create home -l 5 -n 3 --write-journal dev/nvme0n1 --assume-clean dev/sd[abc]
            braid assemble home dev/sd[abc] dev/nvme0n1",
        ..EMPTY
    },
    Scene {
        page: "docs/write-hole.md",
        headings: &["Another policy for a stopped array"],
        before: "home; braid stop home",
        ..EMPTY
    },
    Scene {
        page: "docs/nested.md",
        headings: &["Arrays whose members are arrays"],
        before: "truncate -s 20M m0 m1 m2 m3 m4
            braid create left -l 0 -n 2 --chunk 64K m0 m1
            braid create right -l 0 -n 2 --chunk 64K m2 m3
            mkdir mnt/left mnt/right
            braid assemble left --export fuse:$LAB/mnt/left m0 m1
            braid assemble right --export fuse:$LAB/mnt/right m2 m3
            braid create top -l 1 -n 2 --assume-clean mnt/left/left mnt/right/right
            braid stop left; braid stop right; braid assemble top m0 m1 m2 m3; braid stop top
            rm m0",
        needs: &[FUSE],
        ..EMPTY
    },
];

const GROWN: Scene = Scene { page: "docs/growing.md", ..EMPTY };

pub(super) const GROWING: &[Scene] = &[
    Scene { headings: &["Growing"], before: "home", ..GROWN },
    Scene {
        headings: &["More disks"],
        before: "disks
            braid create home -l 5 -n 4 --assume-clean dev/sd[abcd]
            braid assemble home $LAB/dev/sd{a,b,c,d}",
        ..GROWN
    },
    Scene {
        headings: &["With partial parity logs"],
        before: "disks
            braid create home -l 5 -n 4 -k ppl --assume-clean dev/sd[abcd]
            braid assemble home $LAB/dev/sd{a,b,c,d}",
        ..GROWN
    },
    Scene {
        headings: &["Level 0"],
        before: "disks
            braid create scratch -l 0 -n 4 dev/sd[abcd]
            braid assemble scratch $LAB/dev/sd{a,b,c,d}",
        ..GROWN
    },
    Scene {
        headings: &["Other chunks, another layout"],
        before: "disks
            braid create home -l 5 --layout right-symmetric -n 3 --assume-clean dev/sd[abc]
            braid assemble home $LAB/dev/sd{a,b,c}",
        ..GROWN
    },
    Scene {
        headings: &["In place"],
        before: "disks
            braid create home -l 5 -n 3 --metadata 1.0 --assume-clean dev/sd[abc]
            braid assemble home $LAB/dev/sd{a,b,c}",
        swaps: &[("/var/tmp/", "$LAB/")],
        ..GROWN
    },
    Scene {
        headings: &["Fewer disks, less of each"],
        before: "disks
            braid create home -l 5 -n 4 --assume-clean dev/sd[abcd]
            braid assemble home $LAB/dev/sd{a,b,c,d}",
        ..GROWN
    },
    Scene {
        headings: &["Level 10"],
        before: "disks
            braid create fast -l 10 -n 4 --assume-clean dev/sd[abcd]
            braid assemble fast $LAB/dev/sd{a,b,c,d}",
        ..GROWN
    },
    Scene {
        headings: &["Larger disks"],
        before: "disks
            braid create home -l 5 -n 3 --size 8M --assume-clean dev/sd[abc]
            braid assemble home $LAB/dev/sd{a,b,c}",
        ..GROWN
    },
    Scene {
        headings: &["Another copy"],
        before: "disks
            braid create safe -l 1 -n 2 --assume-clean dev/sd[ef]
            braid assemble safe dev/sd[ef]",
        ..GROWN
    },
    Scene {
        headings: &["Another level"],
        before: "disks
            braid create fast -l 0 -n 2 dev/sd[ab]
            braid assemble fast dev/sd[ab]",
        ..GROWN
    },
];

pub(super) const EXPORTS: &[Scene] = &[
    Scene {
        page: "docs/exports.md",
        headings: &["Exports: how programs use an array"],
        before: "images 5; mkdir mnt/home",
        needs: &[FUSE],
        ..EMPTY
    },
    Scene {
        page: "docs/exports.md",
        headings: &["Who may open one"],
        before: "images 5",
        swaps: &[("owner=root,group=backup", "owner=$(id -un),group=$(id -gn)")],
        ..EMPTY
    },
    Scene {
        page: "docs/exports.md",
        headings: &["Several disks of one array"],
        before: "home",
        swaps: &[("GiB", "MiB")],
        needs: &["nbdinfo"],
        ..EMPTY
    },
    Scene {
        page: "docs/exports.md",
        headings: &["NBD over a network: TLS"],
        before: "images 1
            key='-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes'
            mkdir etc/braid/tls; cd etc/braid/tls
            openssl req -x509 $key -days 2 -subj /CN=braid -keyout server-key.pem \\
                -out server-cert.pem 2>/dev/null
            cp server-cert.pem ca-cert.pem; cd \"$LAB\"",
        swaps: &[("0.0.0.0:10809", "$NET.1:$PORT")],
        needs: &["openssl"],
        ..EMPTY
    },
    Scene {
        page: "docs/exports.md",
        headings: &["While the array runs"],
        before: "home",
        swaps: &[("group=backup", "group=$(id -gn)")],
        ..EMPTY
    },
    Scene {
        page: "docs/guests.md",
        headings: &["vhost-user"],
        before: "images 5; mkdir run/braid",
        ..EMPTY
    },
    Scene {
        page: "docs/guests.md",
        headings: &["NBD"],
        before: "images 5",
        swaps: &[("group=kvm", "group=$(id -gn)")],
        ..EMPTY
    },
];

pub(super) const OPERATING: &[Scene] = &[
    Scene {
        page: "docs/operating.md",
        headings: &["Another version, without a stop"],
        before: "home",
        ..EMPTY
    },
    Scene {
        page: "docs/operating.md",
        headings: &["Arrays that start by themselves"],
        before: "home
            printf '[array.home]\\nmembers = [\"%s\", \"%s\", \"%s\"]\\n' \"$LAB\"/dev/sd{a,b,c} \\
                >etc/braid/arrays.toml",
        ..EMPTY
    },
    Scene {
        page: "docs/monitor.md",
        headings: &["Alerts, metrics and a page", "The page"],
        before: "home",
        swaps: &[
            ("braid monitor", "for_a_moment braid monitor"),
            ("https://hooks.example.org/raid", "http://$NET.1:$PORT/"),
            ("9179", "$NET.2:$PORT"),
            ("8080", "$NET.3:$PORT"),
        ],
        needs: &["openssl"],
        ..EMPTY
    },
];

pub(super) const RESCUE: &[Scene] = &[
    Scene {
        page: "docs/rescue.md",
        headings: &["What is it", "Serve it read-only", "Start it by force"],
        before: HEAP,
        needs: &[FUSE],
        ..EMPTY
    },
    Scene {
        page: "docs/rescue.md",
        headings: &["Read it"],
        before: "images 5; cp c.img d.img; data; braid stop data",
        swaps: &[("a.img c.img d.img", "a.img b.img d.img")],
        needs: &["hexdump"],
        ..EMPTY
    },
    Scene {
        page: "docs/rescue.md",
        headings: &["Images of whole disks"],
        before: "for i in 1 2 3; do
                truncate -s 40M disk$i.img
                printf 'label: gpt\\n2048 2048\\n- 2048\\n- - R\\n' | sfdisk -q disk$i.img
            done
            braid create nas -l 5 -n 3 --assume-clean disk1.img#3 disk2.img#3 disk3.img#3",
        needs: &["sfdisk"],
        ..EMPTY
    },
    Scene {
        page: "docs/rescue.md",
        headings: &["Images of other kinds, and disks elsewhere"],
        before: "images 5; qemu-img convert -O qcow2 a.img a.qcow2
            trap 'kill $(cat b.pid)' EXIT",
        swaps: &[("--fork", "--fork --pid-file=$PWD/b.pid")],
        needs: &["qemu-img", "qemu-nbd"],
        ..EMPTY
    },
    Scene {
        page: "docs/rescue.md",
        headings: &["Images with holes"],
        before: "images 5
            truncate -s 40M d.img
            braid assemble home a.img b.img c.img
            braid fail home b.img; braid remove home b.img; braid add home d.img
            braid status home --watch; braid stop home
            printf '0x0 + 1\\n0x0 0x10000000000 +\\n' | tee a.map >c.map",
        ..EMPTY
    },
    Scene {
        page: "docs/rescue.md",
        headings: &["Superblocks are gone"],
        before: "lost",
        needs: &["mkfs.ext4", "nbdcopy"],
        ..EMPTY
    },
    Scene {
        page: "docs/rescue.md",
        headings: &["Without superblocks"],
        before: "truncate -s 20M a.img b.img c.img",
        needs: &[FUSE],
        ..EMPTY
    },
    Scene {
        page: "docs/rescue.md",
        headings: &["Try it: changes beside the members"],
        before: HEAP,
        swaps: &[("/srv/try", "$LAB/try")],
        needs: &[FUSE],
        ..EMPTY
    },
    Scene {
        page: "docs/rescue.md",
        headings: &["What lies on it"],
        before: "images 5; table_on_home",
        needs: &[FUSE, "debugfs", "fuse2fs", "qemu-img", "nbdcopy"],
        ..EMPTY
    },
    Scene {
        page: "docs/rescue.md",
        headings: &["Volumes over several arrays"],
        before: concat!(
            "group_on_mirrors ",
            env!("CARGO_MANIFEST_DIR"),
            "/../rescue/tests/lvm/volumes.tar.gz"
        ),
        swaps: &[("vg1/volume_1", "vg/linear"), ("vg1-volume_1", "vg-linear")],
        needs: &["nbdcopy", "nbdinfo"],
        ..EMPTY
    },
];

pub(super) const AT_3_AM: &[Scene] = &[
    Scene {
        page: "docs/at-3-am.md",
        headings: &["At 3 a.m.", "A disk failed"],
        before: "home; braid fail home $LAB/dev/sdb",
        ..EMPTY
    },
    Scene {
        page: "docs/at-3-am.md",
        headings: &["More disks failed than the array can do without"],
        before: "home; braid fail home $LAB/dev/sdb; braid fail home $LAB/dev/sdc --force",
        ..EMPTY
    },
    Scene {
        page: "docs/at-3-am.md",
        headings: &["The array does not run"],
        before: "home; braid stop home
            printf '[array.home]\\nmembers = [\"%s\", \"%s\", \"%s\"]\\n' \"$LAB\"/dev/sd{a,b,c} \\
                >etc/braid/arrays.toml",
        hooks: &[("braid assemble home", "braid stop home")],
        refused: &["braid status home"],
        ..EMPTY
    },
    Scene {
        page: "docs/at-3-am.md",
        headings: &["A crash, and a disk is missing"],
        before: "home --export nbd:unix:$LAB/run/home.nbd
            braid fail home $LAB/dev/sdb; braid remove home $LAB/dev/sdb
            killed_while_written home $LAB/run/home.nbd",
        refused: &["braid assemble home /dev/sda /dev/sdc"],
        needs: &["qemu-img"],
        ..EMPTY
    },
    Scene {
        page: "docs/at-3-am.md",
        headings: &["A check found differences"],
        // Behind superblock, bitmap and the like of one member something is written.
        before: "home; braid stop home
            printf wrong | dd of=dev/sdb bs=1M seek=10 conv=notrunc status=none
            braid assemble home $LAB/dev/sd{a,b,c}",
        refused: &["braid check home --wait"],
        ..EMPTY
    },
    Scene {
        page: "docs/at-3-am.md",
        headings: &["It cannot be stopped"],
        before: "home --export fuse:$LAB/mnt; exec 7<mnt/home; ! braid stop home",
        needs: &[FUSE],
        ..EMPTY
    },
    Scene {
        page: "docs/at-3-am.md",
        headings: &["A node died"],
        before: "data; down 6; down 2; until_status data degraded",
        hooks: &[(
            "braid node --listen 10.0.0.6",
            "until_status data '[UUUUU]'; down 2; until_status data degraded",
        )],
        ..EMPTY
    },
    Scene {
        page: "docs/at-3-am.md",
        headings: &["More nodes died than the array can do without"],
        before: "data
            down 2; until_status data '[U_UUU]'; down 4; until_status data '[U_U_U]'
            down 5; until_status data FAILED",
        hooks: &[("braid assemble --explain", "node 2; node 4; node 5")],
        ..EMPTY
    },
    Scene {
        page: "docs/at-3-am.md",
        headings: &["The client died", "A node hangs", "A store is full"],
        before: "data; killed data",
        ..EMPTY
    },
    Scene { page: "docs/at-3-am.md", headings: &["After all that"], before: "data", ..EMPTY },
];

pub(super) const NODES: &[Scene] = &[
    Scene {
        page: "docs/nodes.md",
        headings: &["The first array"],
        swaps: &[("127.0.0.1:700", "$NET.1:701")],
        ..EMPTY
    },
    Scene {
        page: "docs/nodes.md",
        headings: &["Who votes"],
        before: "node 1; node 2",
        swaps: &[("100G", "100M")],
        ..EMPTY
    },
    Scene {
        page: "docs/nodes.md",
        headings: &["Replacing a node"],
        before: "data; braid fail data node://$NET.1:$PORT",
        hooks: &[("braid fail", "until_status data '[UUUUU]'")],
        ..EMPTY
    },
    Scene { page: "docs/nodes.md", headings: &["While it still serves"], before: "data", ..EMPTY },
    Scene { page: "docs/growing.md", headings: &["Over nodes"], before: "data", ..EMPTY },
    Scene {
        page: "docs/growing.md",
        headings: &["More nodes"],
        before: "data",
        swaps: &[("n6:7000", "$NET.6:$PORT")],
        ..EMPTY
    },
    Scene {
        page: "docs/nodes.md",
        headings: &["Looking after nodes"],
        before: "data; UUID=$(uuid data); braid stop data",
        swaps: &[(UUID, "$UUID")],
        ..EMPTY
    },
    Scene { page: "docs/keys.md", headings: &["Keys of nodes"], ..EMPTY },
    Scene {
        page: "docs/keys.md",
        headings: &["A key of one array"],
        before: "braid key new cluster.key; export BRAID_KEY=$LAB/cluster.key
            data; UUID=$(uuid data); braid stop data",
        swaps: &[(UUID, "$UUID")],
        ..EMPTY
    },
];
