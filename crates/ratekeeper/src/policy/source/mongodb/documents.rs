//! The documents at the server: which there are, when they changed, what is in them.
//! Every question has a deadline and a bound; nothing is ever written.

use std::time::Duration;

use ::mongodb::bson::{Document, RawBsonRef, RawDocument, RawDocumentBuf, cstr, doc};
use ::mongodb::error::{Error, ErrorKind};
use ::mongodb::options::{ClientOptions, ConnectionString};
use ::mongodb::{Client, Collection, Cursor};
use ratekeeper_core::NAME_BYTES_MAX;
use tokio::sync::OnceCell;

use super::secret::Secret;
use crate::policy::book::SERVICES_MAX;
use crate::policy::problem::quoted;

/// How many bytes the ids and times of all documents may have together.
const HEADS_BYTES_MAX: usize = 16 << 20;
/// How many documents are asked for at once.
pub(super) const FETCH_MAX: usize = 100;
/// Asking takes one connection at a time; another may be on its way out.
const CONNECTIONS_MAX: u32 = 2;

/// A fingerprint that nobody can forge.
pub(super) type Digest = [u8; 32];

/// What is known of a document before it is read.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) id: Id,
    pub(super) revision: Option<Digest>,
}

#[derive(Debug)]
pub(super) enum Id {
    /// The name of a service.
    Service(String),
    /// Anything else: a fingerprint of it, and how problems show it.
    Other(Digest, String),
}

/// The watched documents of one collection. It has no `Debug`: the driver's would print
/// what is in the URL.
pub(super) struct Documents {
    pub(super) url: ConnectionString,
    pub(super) database: String,
    pub(super) collection: String,
    /// The services to watch; all, if none are named.
    pub(super) services: Option<Vec<String>>,
    pub(super) deadline: Duration,
    pub(super) secret: Secret,
    /// Made when it is first needed: the servers behind a name may have to be asked for.
    pub(super) connected: OnceCell<Collection<RawDocumentBuf>>,
}

impl Documents {
    async fn collection(&self) -> Result<&Collection<RawDocumentBuf>, String> {
        let connect = async || {
            let options = self.within(ClientOptions::parse(self.url.clone()).into_future()).await?;
            let client = Client::with_options(limited(options, self.deadline));
            let client = client.map_err(|error| self.secret.hidden(&said(&error)))?;
            Ok(client.database(&self.database).collection(&self.collection))
        };
        self.connected.get_or_try_init(connect).await
    }

    /// What there is, without what is in it.
    pub(super) async fn heads(&self) -> Result<Vec<Head>, String> {
        let collection = self.collection().await?;
        self.within(self.read_heads(collection)).await?
    }

    async fn read_heads(
        &self,
        collection: &Collection<RawDocumentBuf>,
    ) -> Result<Result<Vec<Head>, String>, Error> {
        let filter = |services| doc! { "_id": { "$in": services } };
        let find = collection.find(self.services.as_ref().map_or_else(Document::new, filter));
        // One more than there may be: then there are too many.
        let limit = i64::try_from(SERVICES_MAX + 1).unwrap_or(i64::MAX);
        let mut cursor = find.projection(doc! { "_id": 1, "last_updated": 1 }).limit(limit).await?;
        let (mut heads, mut bytes) = (Vec::new(), 0);
        while cursor.advance().await? {
            let document = cursor.current();
            bytes += document.as_bytes().len();
            heads.push(Head { id: id(document), revision: revision(document) });
            if heads.len() > SERVICES_MAX || bytes > HEADS_BYTES_MAX {
                let bounds = format!("{SERVICES_MAX}, with {HEADS_BYTES_MAX} bytes of ids in all");
                return Ok(Err(format!("got too many documents; expected at most {bounds}")));
            }
        }
        Ok(Ok(heads))
    }

    /// Asks for some documents, at most [`FETCH_MAX`].
    pub(super) async fn fetch(&self, services: &[String]) -> Result<Cursor<RawDocumentBuf>, String> {
        let find = self.collection().await?.find(doc! { "_id": { "$in": services } });
        self.within(find.into_future()).await
    }

    /// The next of the documents that were asked for.
    pub(super) async fn next(
        &self,
        cursor: &mut Cursor<RawDocumentBuf>,
    ) -> Result<Option<RawDocumentBuf>, String> {
        let there_is = self.within(cursor.advance()).await?;
        Ok(there_is.then(|| cursor.current().to_owned()))
    }

    async fn within<T>(&self, call: impl Future<Output = Result<T, Error>>) -> Result<T, String> {
        match tokio::time::timeout(self.deadline, call).await {
            Ok(answer) => answer.map_err(|error| self.secret.hidden(&said(&error))),
            Err(_) => Err(format!("no answer within {:?}", self.deadline)),
        }
    }
}

/// The driver's own patience is 30 seconds; ours is the deadline.
fn limited(mut options: ClientOptions, deadline: Duration) -> ClientOptions {
    options.server_selection_timeout = Some(deadline);
    options.connect_timeout = Some(deadline);
    options.max_pool_size = Some(CONNECTIONS_MAX);
    options.app_name.get_or_insert_with(|| "ratekeeper".to_owned());
    options
}

/// The reason within an error of the driver, without the wrapping.
fn said(error: &Error) -> String {
    match &*error.kind {
        ErrorKind::Command(command) => {
            format!("{} ({}): {}", command.code_name, command.code, command.message)
        }
        kind => kind.to_string(),
    }
}

pub(super) fn digest(bytes: &[u8]) -> Digest {
    *blake3::hash(bytes).as_bytes()
}

pub(super) fn id(document: &RawDocument) -> Id {
    let id = document.get("_id").ok().flatten();
    let shown = match id {
        Some(RawBsonRef::String(text)) if is_name(text) => return Id::Service(text.to_owned()),
        Some(RawBsonRef::String(text)) => quoted(text),
        Some(RawBsonRef::ObjectId(id)) => format!("the object id {id}"),
        Some(RawBsonRef::Int32(number)) => number.to_string(),
        Some(RawBsonRef::Int64(number)) => number.to_string(),
        Some(_) => "another value".to_owned(),
        None => "none".to_owned(),
    };
    Id::Other(fingerprint(id), shown)
}

/// What tells one `last_updated` from another, whatever its type; nothing, if it has none.
pub(super) fn revision(document: &RawDocument) -> Option<Digest> {
    let updated = document.get("last_updated").ok().flatten();
    let updated = updated.filter(|value| !matches!(value, RawBsonRef::Null | RawBsonRef::Undefined));
    updated.is_some().then(|| fingerprint(updated))
}

fn fingerprint(value: Option<RawBsonRef<'_>>) -> Digest {
    let mut alone = RawDocumentBuf::new();
    if let Some(value) = value {
        alone.append(cstr!("value"), value);
    }
    digest(alone.as_bytes())
}

/// Whether a text can be the name of a service.
pub(super) fn is_name(text: &str) -> bool {
    let printable = text.bytes().all(|byte| (0x20..0x7f).contains(&byte));
    printable && (1..=NAME_BYTES_MAX).contains(&text.len())
}
