use super::*;

const ONE: Range = Range { sector: 3, sectors: 1 };

fn reads(oracle: &mut Oracle, serial: Serial) -> bool {
    let mut bytes = [0; SECTOR];
    if serial != ZEROES {
        stamp::fill(&mut bytes, ONE.sector, serial);
    }
    let moment = oracle.read_submitted();
    oracle.read_completed(moment, ONE.sector, &bytes, false, &|_| false).is_ok()
}

fn write(oracle: &mut Oracle, durable: bool) -> Serial {
    let serial = oracle.new_serial();
    let token = oracle.write_submitted(ONE, serial);
    oracle.write_completed(token, true, durable);
    serial
}

#[test]
fn an_answered_write_is_the_only_content() {
    let mut oracle = Oracle::new(8);
    let serial = oracle.new_serial();
    let token = oracle.write_submitted(ONE, serial);
    assert!(reads(&mut oracle, ZEROES) && reads(&mut oracle, serial));
    oracle.write_completed(token, true, false);
    assert!(!reads(&mut oracle, ZEROES) && reads(&mut oracle, serial));
}

#[test]
fn a_failed_write_leaves_either() {
    let mut oracle = Oracle::new(8);
    let serial = oracle.new_serial();
    let token = oracle.write_submitted(ONE, serial);
    oracle.write_completed(token, false, true);
    assert!(reads(&mut oracle, ZEROES) && reads(&mut oracle, serial));
    let second = write(&mut oracle, false);
    assert!(!reads(&mut oracle, ZEROES) && !reads(&mut oracle, serial));
    assert!(reads(&mut oracle, second));
}

#[test]
fn overlapping_writes_land_in_any_order() {
    let mut oracle = Oracle::new(8);
    let a = oracle.new_serial();
    let b = oracle.new_serial();
    let token_a = oracle.write_submitted(ONE, a);
    let token_b = oracle.write_submitted(ONE, b);
    oracle.write_completed(token_b, true, false);
    oracle.write_completed(token_a, true, false);
    assert!(reads(&mut oracle, a) && reads(&mut oracle, b) && !reads(&mut oracle, ZEROES));
}

#[test]
fn a_read_that_began_earlier_may_see_what_was_there() {
    let mut oracle = Oracle::new(8);
    let moment = oracle.read_submitted();
    write(&mut oracle, true);
    assert!(oracle.read_completed(moment, ONE.sector, &[0; SECTOR], false, &|_| false).is_ok());
    assert!(!reads(&mut oracle, ZEROES));
}

#[test]
fn a_cut_takes_what_was_not_flushed() {
    let mut oracle = Oracle::new(8);
    let first = write(&mut oracle, false);
    let flush = oracle.flush_submitted();
    let second = write(&mut oracle, false);
    oracle.flush_completed(flush);
    let third = write(&mut oracle, false);
    oracle.power_cut();
    assert!(!reads(&mut oracle, ZEROES));
    assert!([first, second, third].iter().all(|&s| reads(&mut oracle, s)));
    let fourth = write(&mut oracle, true);
    oracle.power_cut();
    assert!(!reads(&mut oracle, third) && reads(&mut oracle, fourth));
}

#[test]
fn what_was_read_stays_where_copies_are_equal() {
    let mut oracle = Oracle::new(8);
    let first = write(&mut oracle, false);
    let second = write(&mut oracle, false);
    oracle.power_cut();
    let mut bytes = [0; SECTOR];
    stamp::fill(&mut bytes, ONE.sector, first);
    let moment = oracle.read_submitted();
    assert!(oracle.read_completed(moment, ONE.sector, &bytes, true, &|_| false).is_ok());
    assert!(reads(&mut oracle, first) && !reads(&mut oracle, second));
}

#[test]
fn an_exempt_sector_holds_anything_until_it_is_written() {
    let mut oracle = Oracle::new(8);
    write(&mut oracle, true);
    oracle.exempt(ONE.sector);
    assert!(reads(&mut oracle, ZEROES) && reads(&mut oracle, 77));
    let serial = write(&mut oracle, true);
    assert!(!reads(&mut oracle, ZEROES) && reads(&mut oracle, serial));
}
