//! `/proc/mdstat`: how far a recovery is.

/// `recovery =  0.3% (68480/19551040) finish=9.4min speed=34240K/sec`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Recovery {
    pub(crate) done_kib: u64,
    pub(crate) total_kib: u64,
    /// Speed of each member, in a second.
    pub(crate) speed_kib: u64,
}

impl Recovery {
    /// The first in a text.
    pub(crate) fn of(text: &str) -> Option<Self> {
        text.lines().find_map(Self::line)
    }

    fn line(line: &str) -> Option<Self> {
        let (_, rest) = line.split_once("recovery =")?;
        let (_, rest) = rest.split_once('(')?;
        let (done, rest) = rest.split_once('/')?;
        let (total, rest) = rest.split_once(')')?;
        let (_, rest) = rest.split_once("finish=")?;
        let (_, rest) = rest.split_once("min")?;
        let (_, rest) = rest.split_once("speed=")?;
        let (speed, _) = rest.split_once("K/sec")?;
        Some(Self {
            done_kib: done.parse().ok()?,
            total_kib: total.parse().ok()?,
            speed_kib: speed.parse().ok()?,
        })
    }

    /// Time that `finish` says, before it is rounded to tenths of a minute.
    pub(crate) fn finish_s(&self) -> Option<f64> {
        let left = self.total_kib.checked_sub(self.done_kib)?;
        (self.speed_kib > 0).then(|| left as f64 / self.speed_kib as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MDSTAT: &str = "Personalities : [linear] [raid0] [raid1] [raid10] [raid6] [raid5] [raid4]
st : active raid1 m1[1] m0[0]
      523264 blocks super 1.2 [2/1] [U_]
      [==========>..........]  recovery = 50.4% (264064/523264) finish=0.0min speed=264064K/sec

unused devices: <none>
";

    #[test]
    fn the_line_of_a_recovery_is_read() {
        let found = Recovery::of(MDSTAT).expect("a recovery");
        let same = Recovery { done_kib: 264_064, total_kib: 523_264, speed_kib: 264_064 };
        assert_eq!(found, same);
        assert!((found.finish_s().expect("it ends") - 0.9816).abs() < 0.001);
        let kernel = "recovery =  2.9% (582784/19551040) finish=73.3min speed=4306K/sec";
        let found = Recovery::of(kernel).expect("a recovery");
        assert!((found.finish_s().expect("it ends") / 60.0 - 73.3).abs() < 0.2);
    }

    #[test]
    fn without_a_whole_line_there_is_none() {
        let line = MDSTAT.lines().nth(3).expect("the line");
        for end in 0..line.len() {
            assert_eq!(Recovery::of(&line[..end]), None, "{end}");
        }
        assert_eq!(Recovery::of("recovery=PENDING"), None);
        let stalled = "recovery = 0.0% (9/8) finish=0.0min speed=0K/sec";
        assert_eq!(Recovery::of(stalled).expect("a line").finish_s(), None);
    }
}
