//! What a command reads: sets, earlier reports, and the configuration that goes with them.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use coeval::call::CallSet;
use coeval::config::Config;
use coeval::report::SetReport;

use super::{ConfigFiles, Failure, Sets, Terminal};

/// More than any session has, and little enough to read by mistake.
const MAX_BYTES: u64 = 64 << 20;

/// The names a configuration goes by when nobody names it.
const CONFIG_NAMES: [&str; 4] = ["coeval.yaml", "coeval.yml", "tools.yaml", "tools.yml"];

/// A set and where it came from.
pub(super) struct Named {
    pub(super) from: String,
    pub(super) set: CallSet,
}

impl Sets {
    /// The sets of all files, in order, with what the flags say about each.
    pub(super) fn read(&self) -> Result<Vec<Named>, Failure> {
        if self.sets.iter().filter(|file| is_stdin(file)).count() > 1 {
            return Err(Failure::new("stdin (-) can be read only once").help("name it once, or use files"));
        }
        let mut sets = Vec::new();
        for file in &self.sets {
            let from = name_of(file);
            let bytes = bytes_of(file)?;
            let documents = documents(&bytes);
            for (index, document) in documents.iter().enumerate() {
                let from = match documents.len() {
                    1 => from.clone(),
                    _ => format!("{from}, set {}", index + 1),
                };
                let mut set = CallSet::from_json(document).map_err(|fault| {
                    let failure = Failure::new(format!("{from} is no set of calls")).because(&fault);
                    match fault.suggestion() {
                        // The fault says it itself.
                        Some(_) => failure,
                        None => failure.help(
                            "write {\"calls\": [{\"tool\": \"NAME\", \"arguments\": {…}}]}, or give a message of \
                             Anthropic, OpenAI or Gemini with its tool calls",
                        ),
                    }
                })?;
                set.policy = self.policy.or(set.policy);
                set.purpose = self.purpose.or(set.purpose);
                set.deadline_ms = self.deadline.or(set.deadline_ms);
                sets.push(Named { from, set });
            }
        }
        Ok(sets)
    }

    /// The configuration for the sets: as named, else what lies beside the first of them, else what lies here.
    pub(super) fn config(&self, terminal: &Terminal) -> Result<Config, Failure> {
        let beside = self
            .sets
            .iter()
            .find(|file| !is_stdin(file))
            .map(|file| match file.parent() {
                Some(parent) => parent.to_owned(),
                None => PathBuf::new(),
            });
        self.config.read(beside.as_deref(), terminal)
    }
}

impl ConfigFiles {
    /// The configuration as named, else what lies in this folder, else what lies here.
    ///
    /// What was found is told on stderr if nobody named it.
    pub(super) fn read(&self, beside: Option<&Path>, terminal: &Terminal) -> Result<Config, Failure> {
        let files = match self.config.is_empty() {
            false => self.config.clone(),
            true => {
                let found = found(beside)?;
                let names: Vec<_> = found.iter().map(|file| file.display().to_string()).collect();
                terminal.say(format_args!("config: {}", names.join(", ")));
                found
            }
        };
        Config::load(&files, &|name| std::env::var(name).ok()).map_err(|faults| Failure::unusable(&faults))
    }
}

/// The configuration that nobody named.
fn found(beside: Option<&Path>) -> Result<Vec<PathBuf>, Failure> {
    let here = Path::new("");
    for folder in beside.into_iter().chain([here]) {
        let files: Vec<_> = CONFIG_NAMES
            .iter()
            .map(|name| folder.join(name))
            .filter(|file| file.is_file())
            .collect();
        if !files.is_empty() {
            return Ok(files);
        }
    }
    let looked = match beside.filter(|beside| !beside.as_os_str().is_empty()) {
        Some(beside) => format!("in {} or in the current folder", beside.display()),
        None => "in the current folder".to_owned(),
    };
    Err(
        Failure::new(format!("there is no coeval.yaml or tools.yaml {looked}"))
            .help("name the configuration with --config FILE"),
    )
}

/// Reports of earlier sets, for comparing with.
pub(super) fn earlier(files: &[PathBuf]) -> Result<Vec<SetReport>, Failure> {
    let mut reports = Vec::new();
    for file in files {
        let bytes = bytes_of(file)?;
        for document in documents(&bytes) {
            reports.push(serde_json::from_slice(document).map_err(|error| {
                Failure::new(format!("{} is no report", name_of(file)))
                    .because(&error)
                    .help("give what `coeval run --format json` printed")
            })?);
        }
    }
    Ok(reports)
}

/// The JSON documents that stand one after another in a text. What is no JSON is one document, and its reader will say
/// what is wrong with it.
fn documents(bytes: &[u8]) -> Vec<&[u8]> {
    let mut documents = Vec::new();
    let mut stream = serde_json::Deserializer::from_slice(bytes).into_iter::<serde::de::IgnoredAny>();
    let mut start = 0;
    while let Some(next) = stream.next() {
        if next.is_err() {
            return vec![bytes];
        }
        documents.push(&bytes[start..stream.byte_offset()]);
        start = stream.byte_offset();
    }
    if documents.is_empty() {
        vec![bytes]
    } else {
        documents
    }
}

fn is_stdin(file: &Path) -> bool {
    file.as_os_str() == "-"
}

fn name_of(file: &Path) -> String {
    if is_stdin(file) {
        "stdin".to_owned()
    } else {
        file.display().to_string()
    }
}

/// The bytes of a file or of stdin, bounded, so that a device or a huge file can't fill the memory.
fn bytes_of(file: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = match is_stdin(file) {
        true => io::stdin().lock().take(MAX_BYTES + 1).read_to_end(&mut bytes),
        false => std::fs::File::open(file).and_then(|open| open.take(MAX_BYTES + 1).read_to_end(&mut bytes)),
    };
    let name = name_of(file);
    read.map_err(|error| Failure::new(format!("{name} can't be read")).because(&error))?;
    if bytes.len() as u64 > MAX_BYTES {
        let limit = MAX_BYTES >> 20;
        return Err(
            Failure::new(format!("{name} is larger than {limit} MB")).help("split it into several sets")
        );
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_stand_one_after_another_and_broken_ones_are_left_to_their_reader() {
        let two = br#"{"a": 1}
            {"b": [2]}"#;
        assert_eq!(
            documents(two),
            [br#"{"a": 1}"#.as_slice(), b"\n            {\"b\": [2]}"]
        );
        assert_eq!(documents(b"{\"a\": 1} x"), [b"{\"a\": 1} x".as_slice()]);
        assert_eq!(documents(b"  "), [b"  ".as_slice()]);
        assert_eq!(documents(b""), [b"".as_slice()]);
    }
}
