use std::net::{Ipv4Addr, SocketAddr};

use super::*;

const MOUNTINFO: &[u8] = br"22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
40 27 0:45 / /srv/my\040array rw,nosuid,nodev - fuse braid rw,user_id=0
41 27 0:45 /a0 /srv/copy rw,nosuid,nodev shared:7 master:3 - fuse braid rw,user_id=0
42 40 7:0 / /srv/my\040array/in rw - ext4 /dev/loop0 rw
43 27 0:50 / /srv/b rw - btrfs /dev/loop1 rw
44 27 0:51 / /srv/other rw - fuse.sshfs host: rw
no line of mountinfo
45 27 0:52 / /srv/broken
";

#[test]
fn mountinfo_is_read() {
    let mounts = Mounts::parse(MOUNTINFO);
    let ours = Path::new("/srv/my array");
    assert_eq!(mounts.copies(ours), [Path::new("/srv/copy"), Path::new("/srv/my array/in")]);
    assert!(mounts.copies(Path::new("/srv/none")).is_empty());
    assert!(mounts.is_ours(ours));
    assert!(!mounts.is_ours(Path::new("/srv/other")));
    assert!(!mounts.is_ours(Path::new("/")));
    let loop0 = mounts.of_device((7, 0), Path::new("/dev/loop0"));
    assert_eq!(loop0, [Path::new("/srv/my array/in")]);
    let loop1 = mounts.of_device((7, 1), Path::new("/dev/loop1"));
    assert_eq!(loop1, [Path::new("/srv/b")]);
    assert_eq!(mounts::unescape(br"\9a\134b\12"), Path::new(r"\9a\b\12"));
}

#[test]
fn swaps_are_read() {
    let text = b"Filename\tType\n/dev/sda2                 partition\t8\n/a\\040b file\n";
    let found: Vec<_> = block::swaps_in(text).collect();
    assert_eq!(found, [Path::new("/dev/sda2"), Path::new("/a b")]);
}

#[test]
fn users_are_named_in_one_line() {
    let process = |pid| User::Process(Process { pid, program: Some("fio".into()) });
    assert_eq!(listed(&[process(7)]), "fio (process 7)");
    let mounted = User::Loop {
        device: "/dev/loop0".into(),
        users: vec![User::Mount("/mnt".into()), User::Mount("/srv".into())],
    };
    assert_eq!(mounted.mounts(), [Path::new("/mnt"), Path::new("/srv")]);
    assert_eq!(listed(&[User::Mount("/mnt".into())]), "a file system mounted on /mnt");
    let peer = User::Peer(SocketAddr::from((Ipv4Addr::LOCALHOST, 9)));
    assert_eq!(
        listed(&[mounted, peer]),
        "/dev/loop0 (a file system mounted on /mnt and a file system mounted on /srv) and the \
         client at 127.0.0.1:9"
    );
    let many: Vec<_> = (0..9).map(process).collect();
    assert!(listed(&many).ends_with("fio (process 3) and 5 more"), "{}", listed(&many));
    assert_eq!(listed(&[]), "somebody who cannot be seen from here");
}

#[test]
fn who_has_a_file_open_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().canonicalize().unwrap();
    let ourselves = || {
        let ours = |user: &User| matches!(user, User::Process(p) if p.pid == std::process::id());
        of_mount(&dir).iter().any(ours)
    };
    assert!(!ourselves());
    let file = std::fs::File::create(dir.join("file")).unwrap();
    assert!(ourselves());
    drop(file);
    assert!(!ourselves());
}

#[test]
fn who_has_a_lock_is_found() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let held = crate::lock::LockedFile::from(file.reopen().unwrap());
    held.lock(true).unwrap();
    let ours = Process::of(std::process::id());
    assert_eq!(lock_holders(file.as_file(), file.path()), [ours]);
    let inode = std::os::unix::fs::MetadataExt::ino(&file.as_file().metadata().unwrap());
    let text = format!(
        "1: POSIX  ADVISORY  WRITE 7 fe:00:{inode} 0 EOF\n2: -> FLOCK  ADVISORY  WRITE 8 \
         fe:00:{inode} 0 EOF\n3: FLOCK  ADVISORY  WRITE 9 ff:00:{inode} 0 EOF\nbroken\n"
    );
    assert!(locks::holders(&text, &file.as_file().metadata().unwrap()).is_empty());
}

#[test]
fn listening_sockets_are_read() {
    let line =
        |flags, path| format!("0000000000000000: 00000002 00000000 {flags} 0001 01   77 {path}");
    let listening = line("00010000", "/run/a b.sock");
    let expected = Some(("77", PathBuf::from("/run/a b.sock")));
    assert_eq!(processes::listening_socket(&listening), expected);
    assert_eq!(processes::listening_socket(&line("00000000", "/run/a.sock")), None);
    assert_eq!(processes::listening_socket(&line("00010000", "@abstract")), None);
    assert_eq!(processes::listening_socket("0: 2 0 00010000 0001 01 77"), None);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    assert!(listening_at(std::process::id()).contains(&path));
}
