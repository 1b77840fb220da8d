//! The two streams: the result on stdout, everything else on stderr, each coloured only if it is looked at.

use std::cell::Cell;
use std::fmt::{self, Display};
use std::io::{self, IsTerminal, Write};

use anstyle::{AnsiColor, Style};
use coeval::report::text::Palette;
use serde::Serialize;

use super::{Color, Failure, Format, Output};

/// Colours have one meaning each, everywhere.
pub(super) const GOOD: Style = AnsiColor::Green.on_default();
pub(super) const DOUBT: Style = AnsiColor::Yellow.on_default();
pub(super) const BAD: Style = AnsiColor::Red.on_default();
pub(super) const STRONG: Style = Style::new().bold();
pub(super) const FAINT: Style = Style::new().dimmed();

/// Text in a style, if colours are wanted.
pub(super) struct Painted<T> {
    text: T,
    style: Option<Style>,
}

impl<T: Display> Display for Painted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.style {
            Some(style) => {
                style.fmt(f)?;
                self.text.fmt(f)?;
                style.render_reset().fmt(f)
            }
            None => self.text.fmt(f),
        }
    }
}

/// Whether a stream is to be coloured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paint(bool);

impl Paint {
    /// Text in this style.
    pub(super) fn with<T: Display>(self, style: Style, text: T) -> Painted<T> {
        Painted {
            text,
            style: self.0.then_some(style),
        }
    }

    /// The same for the text of reports.
    pub(super) fn palette(self) -> &'static Palette {
        if self.0 {
            &Palette::COLOURS
        } else {
            &Palette::PLAIN
        }
    }
}

/// Where a command prints to.
#[derive(Debug)]
pub(super) struct Terminal {
    /// For what goes to stdout.
    pub(super) paint: Paint,
    errors: Paint,
    /// Whether somebody watches stderr.
    pub(super) watched: bool,
    /// Whether the reader of stdout has gone away.
    gone: Cell<bool>,
}

impl Terminal {
    pub(super) fn new(color: Color) -> Self {
        // The convention: set to anything but nothing, no program colours its output by itself.
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let paint = |is_terminal| Paint(is_coloured(color, is_terminal, unwanted));
        Self {
            paint: paint(io::stdout().is_terminal()),
            errors: paint(io::stderr().is_terminal()),
            watched: io::stderr().is_terminal(),
            gone: Cell::new(false),
        }
    }

    /// Prints the result.
    ///
    /// A reader that has gone away has seen enough: that is no failure.
    pub(super) fn print(&self, text: &str) -> Result<(), Failure> {
        let mut stdout = io::stdout().lock();
        let written = stdout
            .write_all(text.as_bytes())
            .and_then(|()| match text.ends_with('\n') {
                true => Ok(()),
                false => stdout.write_all(b"\n"),
            });
        match written.and_then(|()| stdout.flush()) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.gone.set(true);
                Ok(())
            }
            Err(error) => Err(Failure::new("the result could not be written to stdout").because(&error)),
        }
    }

    /// Whether nobody reads the result any more, so that nothing more need be done for it.
    pub(super) fn is_unread(&self) -> bool {
        self.gone.get()
    }

    /// Prints the result as JSON: on one line if that is asked, or if it is one of several.
    pub(super) fn print_json(
        &self,
        value: &impl Serialize,
        output: &Output,
        several: bool,
    ) -> Result<(), Failure> {
        let text = match output.compact || several {
            true => serde_json::to_string(value),
            false => serde_json::to_string_pretty(value),
        };
        let text = text.map_err(|error| Failure::new("the result has no JSON").because(&error))?;
        self.print(&text)
    }

    /// Prints a line beside the result. Nobody misses it if stderr is closed.
    pub(super) fn say(&self, line: impl Display) {
        let _ = writeln!(io::stderr().lock(), "{}", self.errors.with(FAINT, line));
    }

    /// Prints a warning beside the result.
    pub(super) fn warn(&self, line: impl Display) {
        let _ = writeln!(
            io::stderr().lock(),
            "{} {line}",
            self.errors.with(DOUBT, "warning:")
        );
    }

    /// Says why the command could not run.
    pub(super) fn failure(&self, failure: &Failure) {
        let mut stderr = io::stderr().lock();
        let _ = writeln!(stderr, "{} {failure}", self.errors.with(BAD, "error:"));
        if let Some(help) = failure.mending() {
            let _ = writeln!(stderr, "{} {help}", self.errors.with(STRONG, "help:"));
        }
    }

    /// Writes over the progress line; nothing takes it away.
    pub(super) fn progress(&self, line: &str) {
        let mut stderr = io::stderr().lock();
        // Back to the line's start, and what was there is cleared.
        let _ = write!(stderr, "\r\x1b[K{}", self.errors.with(FAINT, line));
        let _ = stderr.flush();
    }
}

/// What was typed comes first, then what the user wants everywhere, then what the stream is.
fn is_coloured(color: Color, is_terminal: bool, unwanted: bool) -> bool {
    match color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => is_terminal && !unwanted,
    }
}

impl Output {
    /// Whether the result is JSON.
    pub(super) fn is_json(&self) -> bool {
        self.format == Format::Json
    }
}

/// A text in lines of at most so many characters, as far as its words let it.
pub(super) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.chars().count() + word.chars().count() < width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_for_terminals_unless_somebody_says_otherwise() {
        assert!(is_coloured(Color::Auto, true, false));
        assert!(!is_coloured(Color::Auto, true, true), "NO_COLOR");
        assert!(!is_coloured(Color::Auto, false, false));
        assert!(!is_coloured(Color::Never, true, false));
        assert!(is_coloured(Color::Always, false, true));
    }

    #[test]
    fn text_is_broken_between_words() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("unbreakable is", 4), ["unbreakable", "is"]);
        assert_eq!(wrapped("", 4), [""]);
    }
}
