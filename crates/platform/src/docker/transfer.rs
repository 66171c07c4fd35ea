//! What leaves a container and comes back: its image, and archives of its volumes.

use std::io;
use std::path::Path;

use bollard::errors::Error;
use bollard::models::ContainerConfig;
use bollard::query_parameters::{
    CommitContainerOptions, DownloadFromContainerOptions, ImportImageOptions, RemoveImageOptions,
    UploadToContainerOptions,
};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use tokio::io::AsyncWriteExt;
use tokio_util::io::ReaderStream;

use super::engine::{Engine, as_io};

impl Engine {
    /// Where a container sees volumes that it may write to, also those that its image asks for.
    pub(super) async fn volume_targets(&self, container: &str) -> Result<Vec<String>, Error> {
        let mounts = self.docker().inspect_container(container, None).await?.mounts.unwrap_or_default();
        let volumes = mounts
            .into_iter()
            .filter(|mount| mount.typ.as_deref() == Some("volume") && mount.rw.unwrap_or(true));
        Ok(volumes.filter_map(|mount| mount.destination).collect())
    }

    /// Makes an image of what a container has changed; it must be paused already.
    pub(super) async fn commit(&self, container: &str, name: &str, tag: &str) -> Result<(), Error> {
        let options = CommitContainerOptions {
            container: Some(container.to_owned()),
            repo: Some(name.to_owned()),
            tag: Some(tag.to_owned()),
            pause: false,
            ..Default::default()
        };
        self.docker().commit_container(options, ContainerConfig::default()).await.map(|_| ())
    }

    /// Removes an image; one that does not exist is fine.
    pub(super) async fn remove_image(&self, image: &str) -> Result<(), Error> {
        match self.docker().remove_image(image, None::<RemoveImageOptions>, None).await {
            Err(Error::DockerResponseServerError { status_code: 404, .. }) => Ok(()),
            other => other.map(|_| ()),
        }
    }

    /// Writes a folder of a container as an archive; returns its size.
    pub(super) async fn download(&self, container: &str, folder: &str, file: &Path) -> io::Result<u64> {
        let options = DownloadFromContainerOptions { path: folder.to_owned() };
        write_stream(self.docker().download_from_container(container, Some(options)), file).await
    }

    /// Extracts an archive in a container that need not run.
    pub(super) async fn upload(&self, container: &str, folder: &str, file: &Path) -> Result<(), Error> {
        let options = UploadToContainerOptions { path: folder.to_owned(), ..Default::default() };
        let file = tokio::fs::File::open(file).await?;
        let body = bollard::body_try_stream(ReaderStream::new(file));
        self.docker().upload_to_container(container, Some(options), body).await
    }

    /// Writes an image with all its layers; returns the size.
    pub(super) async fn save_image(&self, image: &str, file: &Path) -> io::Result<u64> {
        write_stream(self.docker().export_image(image), file).await
    }

    /// Reads an image that was saved.
    pub(super) async fn load_image(&self, file: &Path) -> io::Result<()> {
        let body = bollard::body_try_stream(ReaderStream::new(tokio::fs::File::open(file).await?));
        let options = ImportImageOptions { quiet: true, ..Default::default() };
        let mut progress = std::pin::pin!(self.docker().import_image(options, body, None));
        while let Some(step) = progress.next().await {
            step.map_err(as_io)?;
        }
        Ok(())
    }
}

async fn write_stream(pieces: impl Stream<Item = Result<Bytes, Error>>, file: &Path) -> io::Result<u64> {
    let mut pieces = std::pin::pin!(pieces);
    let mut file = tokio::fs::File::create(file).await?;
    let mut written = 0;
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(as_io)?;
        written += piece.len() as u64;
        file.write_all(&piece).await?;
    }
    file.flush().await?;
    Ok(written)
}
