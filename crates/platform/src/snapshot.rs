//! Snapshots: the data of all instances at one moment, as files that outlive the slot and the tool.

use std::time::Duration;

use faultscope_model::InstanceId;
use faultscope_model::units;
use serde::{Deserialize, Serialize};

use crate::{PlatformError, PlatformErrorKind};

/// The data of all instances of a slot. Its files are in the folder that `snapshot` was given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The back end that took it.
    pub platform: String,
    /// How its files are to be read.
    pub form: DataForm,
    /// By instance, in order.
    pub instances: Vec<InstanceSnapshot>,
    /// Data that instances share.
    pub shared: Vec<SharedSnapshot>,
}

/// How the files of a snapshot are to be read. A slot can only start from data of its own form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DataForm {
    /// Upper layers of overlays, with the attributes that root uses.
    Layers,
    /// Upper layers of overlays, with the attributes that ordinary users may use.
    UserLayers,
    /// Real files and folders of the application, without what is only linked.
    Copies,
    /// Images of containers, and archives of their volumes.
    Images,
    /// Keys and values.
    Values,
}

/// The data of one instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceSnapshot {
    /// The instance.
    pub id: InstanceId,
    /// Whether it was running; one that had ended left its data.
    pub ran: bool,
    /// Its start in microseconds since 1970.
    pub started_us: u64,
    /// When it stood still, in microseconds since 1970.
    pub at_us: u64,
    /// From the request to freeze it until it went on.
    #[serde(with = "units::duration")]
    pub pause: Duration,
    /// What was copied.
    pub data: DataSize,
    /// The image that has its files, where it ran in a container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
}

/// Data that instances share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedSnapshot {
    /// What it is.
    pub of: SharedData,
    /// What was copied.
    pub data: DataSize,
}

/// A place that several instances write to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SharedData {
    /// A volume of the application file.
    Volume(String),
    /// The layer over the user's home.
    Home,
}

/// How much was copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DataSize {
    /// Files, folders and links.
    pub files: u64,
    /// Bytes of content; holes of files count nothing.
    pub bytes: u64,
    /// Sockets, devices and files that could not be read.
    pub left_out: u64,
}

impl Snapshot {
    /// The time between the first and the last instance that was frozen.
    pub fn spread(&self) -> Duration {
        let times = || self.instances.iter().filter(|instance| instance.ran).map(|instance| instance.at_us);
        let spread = times().max().zip(times().min()).map_or(0, |(last, first)| last - first);
        Duration::from_micros(spread)
    }

    /// The data of an instance.
    pub fn instance(&self, id: &InstanceId) -> Option<&InstanceSnapshot> {
        self.instances.iter().find(|instance| instance.id == *id)
    }

    /// Refuses a snapshot that a slot of this back end cannot start from.
    pub(crate) fn check(&self, platform: &'static str, form: DataForm) -> Result<(), PlatformError> {
        if self.platform == platform && self.form == form {
            return Ok(());
        }
        let reason = format!(
            "it was taken on `{}` as {}, and here {} are needed on `{platform}`",
            self.platform,
            self.form.name(),
            form.name()
        );
        let error = PlatformError::new(PlatformErrorKind::BadPlan, platform, "start from this snapshot");
        Err(error.because(reason))
    }
}

impl DataSize {
    /// Adds another amount.
    pub fn add(&mut self, other: Self) {
        self.files += other.files;
        self.bytes += other.bytes;
        self.left_out += other.left_out;
    }
}

impl DataForm {
    fn name(self) -> &'static str {
        match self {
            Self::Layers => "layers",
            Self::UserLayers => "layers of an ordinary user",
            Self::Copies => "copies of files",
            Self::Images => "images",
            Self::Values => "values",
        }
    }
}
