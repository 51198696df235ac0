use super::*;

#[test]
fn parity_numbers_are_mds() {
    let raid5 = [0, 1, 2, 3, 4, 5];
    let raid6 = [0, 1, 2, 3, 4, 5, 8, 9, 10, 16, 17, 18, 19, 20];
    for (level, numbers) in [(Level::Raid5, &raid5[..]), (Level::Raid6, &raid6[..])] {
        for number in (0..64).chain([1 << 8, u32::MAX]) {
            match Layout::decode(level, number, 5) {
                Ok(layout) => assert_eq!(layout.encode(), number),
                Err(error) => assert_eq!(error, LayoutError::Number { level, number }),
            }
            assert_eq!(Layout::decode(level, number, 5).is_ok(), numbers.contains(&number));
        }
    }
}

#[test]
fn parity_names_are_mdadms() {
    for level in [Level::Raid5, Level::Raid6] {
        for layout in ParityLayout::ALL {
            let parsed = Layout::parse(level, layout.name());
            if layout.fits(level) {
                assert_eq!(parsed, Ok(Layout::Parity(layout)));
                assert_eq!(Layout::Parity(layout).name().as_deref(), Some(layout.name()));
            }
        }
        for (short, long) in [
            ("la", "left-asymmetric"),
            ("ra", "right-asymmetric"),
            ("ls", "left-symmetric"),
            ("rs", "right-symmetric"),
            ("default", "left-symmetric"),
        ] {
            assert_eq!(Layout::parse(level, short), Layout::parse(level, long));
        }
        for wrong in ["", "n2", "left", "LS", "2", "parity-last-6", "original"] {
            assert!(Layout::parse(level, wrong).is_err(), "{wrong}");
        }
    }
    // On raid5 the ddf names mean the layouts that look the same without Q.
    for (name, number) in [("ddf-zero-restart", 1), ("ddf-N-restart", 0), ("ddf-N-continue", 2)] {
        assert_eq!(Layout::parse(Level::Raid5, name).map(Layout::encode), Ok(number));
    }
    assert!(Layout::parse(Level::Raid5, "left-symmetric-6").is_err());
}

#[test]
fn raid10_numbers_and_names_are_mds() {
    for (number, short, long) in [
        (0x0102, Some("n2"), "near=2"),
        (0x0103, Some("n3"), "near=3"),
        (0x0201, Some("f2"), "far=2"),
        (0x0301, Some("f3"), "far=3"),
        (0x1_0201, Some("o2"), "offset=2"),
        (0x0202, None, "near=2, far=2"),
        (0x1_0202, None, "near=2, offset=2"),
        (0x2_0201, None, "far=2"),
        (0x4_0201, None, "far=2"),
    ] {
        let layout = Layout::decode(Level::Raid10, number, 4).expect("a layout of md's");
        assert_eq!(layout.encode(), number);
        assert_eq!(layout.name().as_deref(), Some(long));
        if let Some(short) = short {
            assert_eq!(Layout::parse(Level::Raid10, short), Ok(layout));
        }
    }
    assert_eq!(Layout::parse(Level::Raid10, "default"), Layout::parse(Level::Raid10, "n2"));
    for wrong in ["", "n", "n0", "n+2", "n201", "n2f2", "x2", "2", "near=2", "ñ2", "f256"] {
        assert!(Layout::parse(Level::Raid10, wrong).is_err(), "{wrong}");
    }
    for wrong in [0, 0x0002, 0x0101, 0x0200, 0x0501, 0x6_0201, 0x8_0102, u32::MAX] {
        assert!(Layout::decode(Level::Raid10, wrong, 4).is_err(), "{wrong:#x}");
    }
}

#[test]
fn raid0_and_the_levels_without_layouts() {
    for (number, name) in [(1, Some("original")), (2, Some("alternate")), (0, None)] {
        let layout = Layout::decode(Level::Raid0, number, 3).expect("a layout of md's");
        assert_eq!(layout.encode(), number);
        assert_eq!(layout.name().as_deref(), name);
        let name = name.unwrap_or("dangerous");
        assert_eq!(Layout::parse(Level::Raid0, name), Ok(layout));
    }
    assert!(Layout::decode(Level::Raid0, 3, 3).is_err());
    assert!(Layout::parse(Level::Raid0, "left-symmetric").is_err());
    for level in [Level::Linear, Level::Raid1, Level::Raid4] {
        // md leaves 5 in the superblock when it makes a raid4 out of a raid0.
        assert_eq!(Layout::decode(level, 5, 3), Ok(Layout::None));
        assert!(Layout::parse(level, "left-symmetric").is_err());
    }
}

#[test]
fn defaults_have_names_of_their_own() {
    for level in Level::ALL {
        let default = Layout::default_for(level);
        assert_eq!(Layout::decode(level, default.encode(), 4), Ok(default));
        if default != Layout::None {
            assert_eq!(Layout::parse(level, "default"), Ok(default));
        }
    }
}
