//! HTTP/2.
use bytes::BytesMut;

use crate::dial::Dialling;
use crate::slot::Origin;
use crate::stream::Stream;

pub(crate) async fn serve(_origin: Origin, _stream: Stream, _input: BytesMut, _dialling: Dialling) {}
