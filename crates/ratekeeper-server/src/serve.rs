//! `ratekeeper serve`: the decision engine over the network.
//!
//! ```text
//! settings -> start: policies, store -> Api     what is asked, what is answered; no sockets
//!                                        |
//!                       Listener  ->    Http    one protocol; others will stand beside it
//! ```

mod admin;
pub mod api;
mod calls;
mod dashboard;
mod demo;
mod descriptors;
#[doc(hidden)]
pub mod fuzz;
mod grpc;
mod headroom;
mod health;
mod hot;
mod http;
mod http2;
mod introduction;
mod listener;
mod logs;
pub mod metrics;
mod notices;
mod openapi;
mod origin;
mod otlp;
mod outage;
mod post;
mod reread;
mod resp;
mod settings;
mod sources;
mod start;
mod store;
mod tls;

pub use admin::{
    Admin, Caller, GUESSERS_MAX, GUESSES_QUOTA, Keyring, Role, TOKEN_BYTES_MAX, TOKEN_BYTES_MIN,
    TOKEN_NAME_BYTES_MAX, TOKEN_VARIABLE, TOKENS_MAX, Tenant, Token, role_of,
};
pub use calls::{Access, Body, CALLS, Call, Method};
pub use grpc::{CALL_BYTES_MAX, DESCRIPTORS_MAX, ENTRIES_MAX, GRPC_IDLE_DEFAULT, Grpc, WATCHES_MAX};
pub use headroom::NEAR_KEYS_MAX;
pub use hot::HOT_KEYS_MAX;
pub use http::{
    BATCH_BYTES_MAX, BODIES_BYTES_MAX, BODY_BYTES_MAX, BODY_WAIT_DEFAULT, HEAD_BYTES_MAX, HEAD_LINES_MAX,
    Http, IDLE_DEFAULT, TOLD_BYTES_MAX,
};
pub use http2::{STREAM_HEAD_BYTES_MAX, STREAM_HEADS_BYTES_MAX, STREAMS_MAX};
pub use listener::{
    CONNECTIONS_MAX_DEFAULT, Finishing, Listener, Place, Protocol, Serving, Spare, Stop, Stream, serve_all,
};
pub use notices::{NOTICES_MAX, Notifying, Receiver, Sending};
pub use otlp::{Collector, EXPORT_EVERY, Exporting, SPANS_MAX};
pub use reread::REREAD_EVERY;
pub use resp::{
    ARGUMENT_BYTES_MAX, ARGUMENTS_MAX, COMMAND_BYTES_MAX, REPLIES_BYTES_MAX, RESP_IDLE_DEFAULT,
    RESP_REST_WAIT_DEFAULT, Resp, TOGETHER_MAX,
};
pub use settings::{Config, GRPC_DEFAULT, HTTP_DEFAULT, SETTINGS_BYTES_MAX, Secret, Settings, Source};
pub use start::run;
