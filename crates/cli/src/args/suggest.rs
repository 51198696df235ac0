//! Suggestions for misspelled words.

/// How much alike two words must be, from 0 to 1: as much as clap asks of its own suggestions.
const ALIKE: f64 = 0.7;

/// The known word that is most like the one typed, if one is like it and no other as much.
pub(crate) fn similar<'a>(
    typed: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let with_likeness = known.into_iter().map(|word| (strsim::jaro(typed, word), word));
    let alike: Vec<_> = with_likeness.filter(|(likeness, _)| *likeness > ALIKE).collect();
    let (most, word) = *alike.iter().max_by(|(one, _), (other, _)| one.total_cmp(other))?;
    let as_much = alike.iter().filter(|(likeness, _)| *likeness == most).count();
    (as_much == 1).then_some(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_similar_word_is_suggested() {
        let known = ["left-symmetric", "left-asymmetric", "right-symmetric"];
        assert_eq!(similar("left-symetric", known), Some("left-symmetric"));
        assert_eq!(similar("left-assymetric", known), Some("left-asymmetric"));
        assert_eq!(similar("raidz", ["raid5", "raid6"]), None, "it could be either");
        assert_eq!(similar("riad5", ["raid5", "raid6"]), Some("raid5"));
        assert_eq!(similar("n2", known), None);
        assert_eq!(similar("", known), None);
    }
}
