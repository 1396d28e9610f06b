//! Everything that can grow has a bound, and every bound that callers may meet is here.

pub use ratekeeper_core::algorithm::DEBT_WINDOWS_MAX;
pub use ratekeeper_core::{
    CHARGES_MAX, COST_BEYOND, ENTRIES_MAX, HELD_MAX, IDEMPOTENCY_DEFAULT, LIMIT_MAX, LIST_CHARGES_MAX,
    NAME_BYTES_MAX, NAMES_MAX, NOTE_BYTES_MAX, OFFSET_MINUTES_MAX, ORGANISATION_PLACES_MAX, PENALTIES_MAX,
    RECEIPT_MAX, RETENTION_MAX, SENTENCES_MAX, SHOWN_CHARS_MAX, SUBJECT_BYTES_MAX, WINDOW_MILLIS_MAX,
    WINDOW_MILLIS_MIN, WINDOWS_MAX,
};

pub use crate::audit::{AUDIT_LINE_BYTES_MAX, AUDIT_LINES_MAX};
pub use crate::control::{BLOCKED_KEY_BYTES_MAX, SWITCHES_MAX};
pub use crate::metrics::SERIES_MAX;
#[cfg(feature = "policy-core")]
pub use crate::policy::LOADS_MAX;
#[cfg(feature = "policy-core")]
pub use crate::policy::limits::{
    BYTES_MAX, COST_MAX, DEPTH_MAX, EXPRESSION_BYTES_MAX, EXPRESSION_DEPTH_MAX, KEYS_MAX, NODES_MAX,
    PROBLEMS_MAX, REPLACES_MAX, RULES_MAX, SERVICES_MAX, STEPS_DEFAULT, STEPS_MAX, STEPS_MIN,
    SUBJECT_PLAIN_BYTES_MAX, TEMPLATE_BYTES_MAX,
};
#[cfg(feature = "watch")]
pub use crate::policy::source::file::{FILES_MAX, FOLDER_BYTES_MAX};
#[cfg(feature = "mongodb")]
pub use crate::policy::source::mongodb::COPY_BYTES_MAX;
pub use crate::store::memory::RECEIPTS_MAX;
pub use crate::store::memory::{MAX_IDS, MAX_KEYS_DEFAULT};
#[cfg(feature = "redis")]
pub use crate::store::redis::{
    CONNECTIONS_MAX, DEADLINE_MAX, PASSWORD_BYTES_MAX, PREFIX_BYTES_MAX, QUEUE_MAX_DEFAULT, REPLICAS_MAX,
    STORED_PAGE_MAX, TOTAL_MAX,
};
pub use crate::store::{
    CLAIMS_MAX, CLUSTER_SEEDS_MAX, SECRET_BYTES, SENTINELS_MAX, SERVERS_MAX, URL_BYTES_MAX,
};
pub use crate::testing::TEST_KEYS_MAX;
