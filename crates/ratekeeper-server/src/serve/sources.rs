//! Where policies come from.

use std::sync::Arc;

use anyhow::Context as _;
use ratekeeper::StoreUrl;
use ratekeeper::policy::source::file::{FileWatch, PolicyFile};
use ratekeeper::policy::{Format, Policies, PolicySpec};

#[cfg(feature = "mongodb")]
use self::mongo::MongoWatch;
#[cfg(not(feature = "mongodb"))]
use self::without_mongo::{self as mongo, MongoWatch};
use super::settings::{Config, Secret, is_mongodb};

/// What is in force until somebody says otherwise.
const STARTER: &str = include_str!("starter.toml");
/// The same where a load can be started to look at.
const DEMO: &str = include_str!("demo/policy.toml");

/// Where policies come from, for as long as they are wanted.
#[derive(Debug)]
pub(super) struct Sources {
    pub(super) policies: Policies,
    pub(super) description: String,
    file: Option<FileWatch>,
    mongo: Option<MongoWatch>,
}

impl Sources {
    pub(super) async fn open(config: &Config) -> anyhow::Result<Self> {
        let url = config.store.url.as_ref().and_then(|Secret(url)| url.parse::<StoreUrl>().ok());
        let parted = url.is_some_and(|url| url.is_parted());
        let policies = Policies::builder().instances(config.instances).parted(parted).build()?;
        let mut sources = Self { policies, description: String::new(), file: None, mongo: None };
        let Some(Secret(source)) = &config.policy else {
            let (name, text) =
                if config.demo_load { ("demo policy", DEMO) } else { ("starter policy", STARTER) };
            sources.policies.install(name, PolicySpec::read(name, Format::Toml, text.as_bytes()), None)?;
            sources.description = format!("a {name}; --policy FILE puts yours into force");
            return Ok(sources);
        };
        if is_mongodb(source) {
            let mongo = mongo::start(source, &config.mongo, &sources.policies).await.context("policy")?;
            let whence =
                if mongo.is_from_copy() { "from the local copy of MongoDB's" } else { "from MongoDB" };
            sources.description = whence.to_owned();
            sources.mongo = Some(mongo);
        } else {
            let (file, policies) = (PolicyFile::new(source), sources.policies.clone());
            let started = tokio::task::spawn_blocking(move || file.start(&policies)).await?;
            sources.file = Some(started.context("policy")?);
            sources.description = source.clone();
        }
        let services = sources.policies.status().iter().filter(|service| service.in_force).count();
        if services == 0 {
            tracing::warn!("there is no policy: /v1/check has nothing to decide by");
        }
        sources.description += &format!(" ({services} in force)");
        Ok(sources)
    }

    /// Reads all there is now, without waiting until somebody notices a change.
    ///
    /// # Errors
    /// If some of it cannot be read or is wrong; what was in force stays in force.
    pub(super) async fn read_again(self: &Arc<Self>) -> anyhow::Result<()> {
        let sources = Arc::clone(self);
        tokio::task::spawn_blocking(move || sources.file.as_ref().map_or(Ok(()), FileWatch::refresh))
            .await??;
        if let Some(mongo) = &self.mongo {
            mongo.refresh().await?;
        }
        Ok(())
    }
}

#[cfg(feature = "mongodb")]
mod mongo {
    use ratekeeper::policy::Policies;
    use ratekeeper::policy::source::mongodb::MongoSource;
    pub(super) use ratekeeper::policy::source::mongodb::MongoWatch;

    use crate::serve::settings::MongoConfig;

    pub(super) async fn start(
        url: &str,
        config: &MongoConfig,
        policies: &Policies,
    ) -> anyhow::Result<MongoWatch> {
        let mut source = MongoSource::builder(url);
        if let Some(database) = &config.database {
            source = source.database(database);
        }
        if let Some(collection) = &config.collection {
            source = source.collection(collection);
        }
        if let Some(interval) = config.interval {
            source = source.interval(interval);
        }
        if let Some(copy) = &config.copy {
            source = source.copy(copy);
        }
        Ok(source.build()?.start(policies).await?)
    }
}

/// What stands in for it in a build without the driver.
#[cfg(any(test, not(feature = "mongodb")))]
mod without_mongo {
    use ratekeeper::policy::Policies;

    use crate::serve::settings::MongoConfig;

    /// There is none.
    #[derive(Debug)]
    pub(super) enum MongoWatch {}

    impl MongoWatch {
        #[cfg_attr(feature = "mongodb", expect(dead_code, reason = "only what it refuses is tested"))]
        pub(super) fn refresh(&self) -> std::future::Ready<anyhow::Result<()>> {
            match *self {}
        }

        #[cfg_attr(feature = "mongodb", expect(dead_code, reason = "only what it refuses is tested"))]
        pub(super) fn is_from_copy(&self) -> bool {
            match *self {}
        }
    }

    pub(super) fn start(
        _url: &str,
        _: &MongoConfig,
        _: &Policies,
    ) -> std::future::Ready<anyhow::Result<MongoWatch>> {
        std::future::ready(Err(anyhow::anyhow!(
            "got the URL of a MongoDB, which this build cannot read: it was made without the feature `mongodb`, as by \
             `make run` and `make demo`; expected a file or a folder, or another build \
             (cargo build --release -p ratekeeper-server)"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::settings::MongoConfig;

    #[tokio::test]
    async fn a_build_without_mongodb_says_so() {
        let policies = Policies::builder().build().unwrap();
        let config = MongoConfig { database: None, collection: None, interval: None, copy: None };
        let error = without_mongo::start("mongodb://u:hunter2@h/d", &config, &policies)
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains("without the feature `mongodb`") && !error.contains("hunter2"), "{error}");
    }
}
