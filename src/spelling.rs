//! The known word nearest to one that isn't known, for "did you mean".

/// The known word that is most probably meant, if any is near enough to be worth offering.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = plain(word)?;
    known
        .into_iter()
        .filter_map(|candidate| Some((distance(&word, &plain(candidate)?), candidate)))
        .filter(|(distance, candidate)| *distance <= (candidate.len().min(word.len()) + 1) / 3)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Letter case and word separators are what people mix up most, so they don't count.
fn plain(word: &str) -> Option<Vec<char>> {
    // Nobody mistypes a word this long, and the distance is quadratic.
    (word.len() <= 64).then(|| {
        word.chars()
            .filter(|c| !matches!(c, '_' | '-'))
            .flat_map(char::to_lowercase)
            .collect()
    })
}

/// How many letters to insert, drop, replace or swap with their neighbour.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_recognised_and_other_words_are_not() {
        let known = ["database", "statement", "allowedValues"];
        assert_eq!(nearest("databse", known), Some("database"));
        assert_eq!(nearest("satement", known), Some("statement"));
        assert_eq!(nearest("allowed_values", known), Some("allowedValues"));
        assert_eq!(nearest("host", known), None);
        assert_eq!(nearest("", known), None);
        assert_eq!(nearest("a", ["b"]), None);
        assert_eq!(nearest(&"x".repeat(1_000_000), known), None);
    }
}
